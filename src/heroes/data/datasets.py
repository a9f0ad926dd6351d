"""What every loader takes and gives: options in, a data set out, and where data sets lie on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heroes.data.examples import Examples
from heroes.errors import DataError
from heroes.messages import Integers
from heroes.seeds import Seed

Progress = Callable[[str, int, int | None], None]
"""Called as work goes on: what is being done, how much is done, and how much there is (None if unknown)."""


@dataclass(frozen=True)
class DataOptions:
    """How to load a data set. Every loader takes all of it and reads what concerns it."""

    directory: Path | None = None
    """where data sets lie, one folder each; None is $HEROES_DATA, else the user's data folder"""
    source: Path | None = None
    """the file or folder of this data set, when it does not lie in `directory`"""
    test: Path | None = None
    """images, table, text: the file or folder to test on; None is what lies beside, else a `test_share`"""
    test_share: float = 0.2
    """images, table, text, femnist: the share of the examples to test on, where they have no test set"""
    target: str | None = None
    """table, text: the column to predict; None is `label` for text"""
    targets: str = "classes"
    """table, text: whether targets are "classes" or "numbers" to estimate"""
    owner: str | None = None
    """table, text: the column that says who made each row, for the natural split"""
    categories: tuple[str, ...] = ()
    """table: columns that are words though they look like numbers"""
    ignore: tuple[str, ...] = ()
    """table: columns that are left out"""
    text: str = "text"
    """text: the column with the texts"""
    length: int = 256
    """text: so many bytes of every text are read"""
    augment: bool = True
    """cifar10, cifar100, images, imagenet100: flip and crop training images"""
    size: int = 144
    """images, imagenet100: images are resized to size x size"""
    classes: tuple[str, ...] = ()
    """images, imagenet100: the class folders to take; none is all, or the first 100 by name"""
    writers: Path | None = None
    """mnist: an .npz file with `train_writer`, the writer of every training digit"""
    minimum_windows: int = 1
    """shakespeare: roles with fewer windows are left out; LEAF keeps all that have one"""
    roles: int | None = None
    """shakespeare: keep this many roles, drawn by `seed`; None keeps all"""
    test_limit: int | None = None
    """test on this many examples, drawn by `seed`; None is all of them"""
    seed: Seed = 0
    """of `heroes.seeds`; a data set of another package gets a number of its own"""
    progress: Progress | None = None

    def root(self, name: str) -> Path:
        """The file or folder that holds the named data set, or an error that says what to do."""
        path = _expanded(self.source) if self.source is not None else data_directory(self.directory) / name
        if not path.exists():
            raise DataError(
                f"there is no {name} data at {path}; get it by `heroes data get {name}`, or set data.source "
                "to the path of your copy"
            )
        return path


@dataclass(frozen=True)
class Dataset:
    """Training and test examples, and if known, each example's owner and the names of classes."""

    train: Examples
    test: Examples
    owners: Integers | None = None
    """the owner of every training example, 0 .. owners - 1: for the natural split"""
    class_names: tuple[str, ...] = ()
    owner_names: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """files that could not be read, each with the reason"""
    about: Mapping[str, Any] = field(default_factory=dict)
    """how inputs and targets were made of what the files hold, where that takes numbers"""


Loader = Callable[[DataOptions], Dataset]


def data_directory(given: str | Path | None = None) -> Path:
    """Where data sets lie: the given folder, else $HEROES_DATA, else the platform's folder for user data."""
    if given is not None:
        return _expanded(given)
    if own := os.environ.get("HEROES_DATA"):
        return _expanded(own)
    if sys.platform == "win32":
        base = _expanded(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    elif sys.platform == "darwin":
        base = _expanded("~/Library/Application Support")
    else:
        base = _expanded(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    return base / "heroes"


def _expanded(path: str | Path) -> Path:
    """A path in which ~ is the user's home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(
            f"there is no home directory for {str(path)!r}: set HOME, or say where data lies by HEROES_DATA "
            "or data.directory"
        ) from None
