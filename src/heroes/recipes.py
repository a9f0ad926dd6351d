"""One function per experiment; each gives a configuration that can be changed further with `Config.changed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heroes.config import Config
from heroes.errors import ConfigError, did_you_mean


def digits(*, rounds: int = 40, seed: int = 0) -> Config:
    """scikit-learn's bundled 8x8 digits on 40 small boards: needs no download and takes seconds."""
    return Config(task="digits").changed({"federation.rounds": rounds, "seed": seed})


TASKS: dict[str, Callable[[], Config]] = {"digits": digits}


TUNED: dict[tuple[str, str], dict[str, Any]] = {}
"""What differs from a task's recipe for a scheme, each tuned by itself so that none is compared at another's settings."""


def recipe(task: str, strategy: str | None = None) -> Config:
    """The configuration of a task by name, tuned for a scheme."""
    if task not in TASKS:
        raise ConfigError(f"unknown task {task!r}: {did_you_mean(task, TASKS)}; or give the path of a TOML file")
    config = TASKS[task]()
    chosen = config.with_strategy(strategy or config.strategy.name)
    return chosen.changed(TUNED.get((task, chosen.strategy.name), {}))
