"""What can go wrong. Every error that a user can cause is a `HeroesError` with one clear sentence or two."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HeroesError(Exception):
    """The root of all errors that heroes raises on purpose; `exit_code` is the command line's exit code."""

    exit_code = 2


class ConfigError(HeroesError):
    """A setting is unknown, has a wrong value, or contradicts another one."""


class DataError(HeroesError):
    """Data cannot be read, or cannot be shared out over the clients as asked."""


class ModelError(HeroesError):
    """A model family cannot be cut into widths."""


class ExchangeError(HeroesError):
    """A tensor cannot travel: a value is not finite, or what arrived is malformed."""

    exit_code = 1


class RunFolderError(HeroesError):
    """A run folder cannot be written or read."""


class TrainingError(HeroesError):
    """Training cannot go on, for example because every update of the first round was refused."""

    exit_code = 1


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The tail of an error message: the nearest choice, then all of them.

    >>> did_you_mean("digit", ["digits", "cifar10"])
    "did you mean 'digits'? Choices: cifar10, digits"
    """
    names = sorted(choices)
    near = get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Choices: {', '.join(names)}"


def said(error: Exception) -> str:
    """An error in one line.

    >>> said(KeyError("bias"))
    "KeyError: 'bias'"
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
