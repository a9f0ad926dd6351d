"""MNIST from its idx files, and who wrote which digit, from a file of the user's: a natural split by person."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from heroes.data import idx
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.images import ImageTransform
from heroes.errors import DataError
from heroes.messages import Integers

WRITERS = "mnist_writer_ids.npz"
_KEY = "train_writer"
_NORMAL = ImageTransform(mean=(0.1307,), std=(0.3081,))


def load(options: DataOptions) -> Dataset:
    """MNIST: 70,000 handwritten digits of 28x28; natural split by writer, with a file that says who wrote which."""
    folder = idx.folder_of(options.root("mnist"))
    train, test = (idx.examples(folder, split, 10, _NORMAL) for split in ("train", "t10k"))
    beside = folder / WRITERS
    path = options.writers or (beside if beside.is_file() else None)
    digits = tuple(str(digit) for digit in range(10))
    if path is None:
        return Dataset(train, test, class_names=digits)
    writers = read_writers(Path(path).expanduser(), len(train))
    names, owners = np.unique(writers, return_inverse=True)
    return Dataset(train, test, owners.astype(np.int64), digits, tuple(f"writer {name}" for name in names))


def read_writers(path: Path, count: int) -> Integers:
    """The writer of every training digit: the array `train_writer` of an .npz file, one whole number each."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            writers = file[_KEY]
    except (OSError, ValueError, KeyError, EOFError, TypeError, MemoryError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} gives no writers: it must be an .npz file with an array {_KEY!r} ({error})") from error
    if not np.issubdtype(writers.dtype, np.integer) or writers.shape != (count,):
        raise DataError(
            f"{path}: {_KEY!r} has shape {writers.shape} of {writers.dtype}; "
            f"it must have one whole number for each of {count} digits"
        )
    return np.asarray(writers, dtype=np.int64)
