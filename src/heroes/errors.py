"""What can go wrong, as exceptions. Everything a user can cause is a `HeroesError`; its text is one clear
sentence or two. `printable` is for words of others: records, files, clients, plug-ins.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb

LONGEST_LINE = 5000  # characters of one text on a console or in a log
_HARMLESS = "\u00a0\u200c\u200d"  # not printable by Python's rules, but only spaces and joiners


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


class RankLostError(TrainingError):
    """A machine of an MPI job cannot be reached any more; `resume` goes on. To scripts: try again."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The tail of an error message: the nearest choice, then all of them.

    >>> did_you_mean("digit", ["digits", "cifar10"])
    "did you mean 'digits'? Choices: cifar10, digits"
    """
    names = sorted(choices)
    near = get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Choices: {', '.join(names)}"


def said(error: BaseException) -> str:
    """An error in one line.

    >>> said(KeyError("bias"))
    "KeyError: 'bias'"
    """
    return printable(f"{type(error).__name__}: {' '.join(str(error).split())}", 300)


def place(error: BaseException) -> str:
    """Where a file of the user's own failed, in brackets; nothing if no such file had a part in it."""
    others = [
        Path(__file__).parent,
        *map(Path, (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))),
    ]
    called = [each for each in extract_tb(error.__traceback__) if not each.filename.startswith("<")]
    frames = [each for each in called if not any(map(Path(each.filename).is_relative_to, others))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def printable(text: str, most: int = LONGEST_LINE) -> str:
    """Text from outside in one line that commands no terminal, can be written as UTF-8 and is not too long:
    control characters are shown as escapes, and what is too long loses its middle.

    >>> print(printable("red: \\x1b[31m, a line\\n, half a letter: \\ud800"))
    red: \\x1b[31m, a line\\n, half a letter: \\ud800
    >>> printable("a name of many letters", 10)
    'a name…ers'
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() or each in _HARMLESS else _escaped(each) for each in text)
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[len(text) - tail :]}"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
