"""One function per experiment; each gives a configuration that can be changed further with `Config.changed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heroes.errors import ConfigError, did_you_mean
from heroes.settings.config import Config


def digits(*, rounds: int = 40, seed: int = 0) -> Config:
    """scikit-learn's bundled 8x8 digits on 40 small boards: needs no download and takes seconds."""
    return Config(task="digits").changed({"federation.rounds": rounds, "seed": seed})


def cifar10(*, rounds: int = 300, seed: int = 0) -> Config:
    """The paper's CNN on CIFAR-10: 100 clients, 40 % of a client's images from one class."""
    return _paper("cifar10", rounds, seed).changed(
        {
            "data.name": "cifar10",
            "model.name": "cnn",
            "training.learning_rate": 0.03,
            "training.weight_decay": 5e-4,
            "evaluation.every": 5,
        }
    )


def imagenet100(*, rounds: int = 300, seed: int = 0) -> Config:
    """ResNet-18 on 100 classes of ImageNet (any ImageFolder): 100 clients, each lacking 40 classes."""
    return _paper("imagenet100", rounds, seed).changed(
        {
            "data.name": "imagenet100",
            "data.partition": "missing",
            "model.name": "resnet18",
            "training.learning_rate": 0.05,
            "training.weight_decay": 5e-4,
            "evaluation.every": 10,
            "evaluation.batch_size": 100,
        }
    )


def shakespeare(*, rounds: int = 300, seed: int = 0) -> Config:
    """A character RNN on the complete works: each of 100 clients is one speaking role of one play."""
    return _paper(
        "shakespeare", rounds, seed
    ).changed(
        {
            "data.name": "shakespeare",
            "data.partition": "natural",
            "data.minimum_windows": 1000,
            "data.roles": 100,
            "data.test_limit": 5000,
            "model.name": "char_rnn",
            "model.rank_ratio": 0.5,
            "training.learning_rate": 0.02,
            "training.clip": 1.0,
            "strategy.pace": "constant",  # uploads take longer than steps: fewer steps a round would waste them,
            "strategy.tau_min": 10,
            "exchange.up_bits": 8,  # and in 32 bits wide slices on slow links had no time to train at all
            "exchange.down_bits": 8,
            "evaluation.every": 5,
        }
    )


def _paper(task: str, rounds: int, seed: int) -> Config:
    """What the paper's tasks share: its fleet of 100 clients, 10 a round, batches of 32, about 20 local
    steps.
    """
    return Config(task=task, seed=seed).changed(
        {
            "federation.clients": 100,
            "federation.rounds": rounds,
            "fleet.name": "paper",
            "training.batch_size": 32,
            "training.learning_rate_decay": 0.997,
            "strategy.tau_first": 20,
            "strategy.tau_min": 5,
            "strategy.tau_max": 100,
        }
    )


def paper(task: str, *, rounds: int = 600, seed: int = 0) -> Config:
    """A task as near to the paper's text as it can be told: no normalisation, free blocks, the literal pace,
    no quantisation.
    """
    return recipe(task).changed(
        {
            "seed": seed,
            "federation.rounds": rounds,
            "model.norm": "none",
            "strategy.blocks": "free",
            "strategy.pace": "bound",
            "strategy.deadline": "fastest",
            "strategy.tau_min": 1,
            "strategy.tau_first": 50,
            "training.train_in": "weights",
            "training.learning_rate": 0.01,
            "training.learning_rate_decay": 0.993,
            "training.learning_rate_floor": 0.001,
            "training.momentum": 0.9,
            "fleet.count_download": False,
        }
    )


SAME_TAU = ("fedavg", "heterofl", "flanc")
TASKS: dict[str, Callable[..., Config]] = {
    "digits": digits,
    "cifar10": cifar10,
    "imagenet100": imagenet100,
    "shakespeare": shakespeare,
}


TUNED: dict[tuple[str, str], dict[str, Any]] = {
    # learning rates on digits: the best of 0.02, 0.05, 0.1, 0.2 for each scheme; only ADP's differs from the
    # recipe's 0.1. ADP's rounds are short, since it settles on one or two local steps: it gets more of them.
    ("digits", "adp"): {"training.learning_rate": 0.05, "federation.rounds": 120},
    **{
        (task, scheme): {"strategy.tau": 20}
        for task in ("cifar10", "imagenet100", "shakespeare")
        for scheme in SAME_TAU
    },
}
"""What differs from a task's recipe for a scheme. Rates are tuned for each scheme on digits, not yet on the
larger tasks.
"""


def recipe(task: str, strategy: str | None = None) -> Config:
    """The configuration of a task by name, tuned for a scheme."""
    if task not in TASKS:
        raise ConfigError(
            f"unknown task {task!r}: {did_you_mean(task, TASKS)}; or give the path of a TOML file"
        )
    config = TASKS[task]()
    chosen = config.with_strategy(strategy or config.strategy.name)
    return chosen.changed(TUNED.get((task, chosen.strategy.name), {}))
