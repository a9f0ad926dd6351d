"""One function per experiment; each gives a configuration that can be changed with `Config.changed`.

All take `rounds`, `seed` and the name of a `strategy`, whose settings are those that suit the experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heroes.errors import ConfigError, did_you_mean
from heroes.settings import tuned_files
from heroes.settings.config import Config
from heroes.strategies.base import Strategy

Chosen = str | Strategy
"""a strategy by name, or one of the user's own"""
_PAPER = {
    "federation.clients": 100,
    "federation.rounds": 300,
    "fleet.name": "paper",
    "training.batch_size": 32,
    "training.learning_rate_decay": 0.997,
}
"""what the paper's experiments share: its fleet of 100 clients, 10 a round, batches of 32"""
_YOURS = {"training.learning_rate": 0.05}
"""what recipes for data of the user's own share; nothing can be tuned ahead for them"""


def digits(*, rounds: int | None = None, seed: int = 0, strategy: Chosen | None = None) -> Config:
    """The bundled 8x8 digits on 40 small boards: needs no download and takes seconds."""
    return _experiment("digits", {}, rounds, seed, strategy)


def cifar10(*, rounds: int | None = None, seed: int = 0, strategy: Chosen | None = None) -> Config:
    """The paper's CNN on CIFAR-10: 100 clients, 40 % of a client's images from one class."""
    settings = _PAPER | {
        "data.name": "cifar10",
        "model.name": "cnn",
        "training.learning_rate": 0.03,
        "training.weight_decay": 5e-4,
        "evaluation.every": 2,
        "evaluation.sample": 2500,
    }
    return _experiment("cifar10", settings, rounds, seed, strategy)


def imagenet100(*, rounds: int | None = None, seed: int = 0, strategy: Chosen | None = None) -> Config:
    """ResNet-18 on 100 classes of ImageNet (any ImageFolder): 100 clients, each lacking 40 classes."""
    settings = _PAPER | {
        "data.name": "imagenet100",
        "data.partition": "missing",
        "model.name": "resnet18",
        "training.learning_rate": 0.05,
        "training.weight_decay": 5e-4,
        "evaluation.every": 2,
        "evaluation.sample": 1000,
        "evaluation.batch_size": 100,
    }
    return _experiment("imagenet100", settings, rounds, seed, strategy)


def shakespeare(*, rounds: int | None = None, seed: int = 0, strategy: Chosen | None = None) -> Config:
    """A character RNN on the complete works: each of 100 clients is one speaking role of one play."""
    settings = _PAPER | {
        "data.name": "shakespeare",
        "data.partition": "natural",
        "data.minimum_windows": 1000,
        "data.roles": 100,
        "data.test_limit": 5000,
        "model.name": "char_rnn",
        "model.rank_ratio": 0.5,
        "training.learning_rate": 0.1,  # by `heroes study rates-shakespeare`
        "training.clip": 1.0,
        "exchange.up_bits": 8,  # in 32 bits wide slices on slow links had no time to train at all
        "exchange.down_bits": 8,
        "evaluation.sample": 2000,
    }
    return _experiment("shakespeare", settings, rounds, seed, strategy)


def images(*, rounds: int | None = None, seed: int = 0, strategy: Chosen | None = None) -> Config:
    """Your own images in folders by class, on 40 small boards: data.source says where."""
    settings = {"data.name": "images", "data.size": 64, "data.partition": "iid", "model.name": "cnn"}
    return _experiment("images", settings | _YOURS, rounds, seed, strategy)


def table(*, rounds: int | None = None, seed: int = 0, strategy: Chosen | None = None) -> Config:
    """Your own CSV, JSON lines or Parquet file: data.source says where, data.target what to predict."""
    settings = {"data.name": "table", "data.partition": "iid", "model.name": "mlp"}
    return _experiment("table", settings | _YOURS, rounds, seed, strategy)


def text(*, rounds: int | None = None, seed: int = 0, strategy: Chosen | None = None) -> Config:
    """Your own texts with labels in a CSV, JSON lines or Parquet file: data.source says where."""
    settings = {"data.name": "text", "data.partition": "iid", "model.name": "text_cnn"}
    return _experiment("text", settings | _YOURS, rounds, seed, strategy)


def _experiment(
    name: str, settings: Mapping[str, Any], rounds: int | None, seed: int, strategy: Chosen | None
) -> Config:
    """An experiment's settings, then those that suit the strategy, then what the caller asks for."""
    config = Config(experiment=name, seed=seed)
    chosen = config if strategy is None else config.with_strategy(strategy)
    asked = {} if rounds is None else {"federation.rounds": rounds}
    return chosen.changed({**chosen.strategy.companions, **settings, **tuned(name, chosen.strategy), **asked})


def tuned(experiment: str, strategy: Strategy) -> dict[str, Any]:
    """The settings that suit a strategy on an experiment: what it says itself, then what was tuned for it.

    Args:
        experiment: its name.
        strategy: the strategy, with whatever settings.
    """
    return {**strategy.tuned.get(experiment, {}), **tuned_files.shipped(experiment).get(strategy.name, {})}


def paper(experiment: str, *, rounds: int = 600, seed: int = 0) -> Config:
    """An experiment as near to the paper's text as can be: no norm, free blocks, the literal pace.

    Args:
        experiment: its name.
        rounds: how many.
        seed: of everything that is drawn.
    """
    config = recipe(experiment)
    return config.changed(
        {
            "seed": seed,
            "federation.rounds": rounds,
            "model.norm": "none",
            "training.train_in": "weights",
            "training.learning_rate": 0.01,
            "training.learning_rate_decay": 0.993,
            "training.learning_rate_floor": 0.001,
            "training.momentum": 0.9,
            "fleet.count_download": False,
            **config.strategy.literal,
        }
    )


EXPERIMENTS: dict[str, Callable[..., Config]] = {
    "digits": digits,
    "cifar10": cifar10,
    "imagenet100": imagenet100,
    "shakespeare": shakespeare,
    "images": images,
    "table": table,
    "text": text,
}


def recipe(experiment: str, strategy: Chosen | None = None) -> Config:
    """The configuration of an experiment by name.

    Args:
        experiment: its name, as `heroes list` has it.
        strategy: for which it is tuned; by default Heroes.
    """
    if experiment not in EXPERIMENTS:
        if (Path(experiment) / "config.toml").is_file():
            raise ConfigError(
                f"{experiment!r} is a run: heroes resume goes on with it; to repeat it, give its config.toml"
            )
        if Path(experiment).is_dir():
            raise ConfigError(
                f"{experiment!r} is a folder, but no run: give an experiment, a TOML file, or run folders "
                "in it"
            )
        raise ConfigError(
            f"unknown experiment {experiment!r}: {did_you_mean(experiment, EXPERIMENTS)}; or give the path "
            "of a TOML file"
        )
    return EXPERIMENTS[experiment](strategy=strategy)
