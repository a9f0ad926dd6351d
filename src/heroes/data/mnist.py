"""MNIST from its idx files, and optionally a file of who wrote each digit, for a natural split."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import IO

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
    """MNIST: 70,000 handwritten digits of 28x28; natural split by writer, given a file of who wrote which."""
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
        with zipfile.ZipFile(path) as archive, archive.open(f"{_KEY}.npy") as file:
            return _numbers(file, count)
    except Exception as error:  # a broken file can break zipfile and numpy in any way
        raise DataError(
            f"{path} gives no writers: it must be an .npz file with an array {_KEY!r} ({error})"
        ) from error


def _numbers(file: IO[bytes], count: int) -> Integers:
    """So many whole numbers in numpy's format; the header is checked first, since it can lie."""
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a header that numpy wonders about is none of numpy's own
        shape, _, kind = read_header(file)
    if kind.kind not in "iu" or shape != (count,):
        raise ValueError(
            f"it has shape {shape} of {kind}; it must have one whole number for each of {count} digits"
        )
    raw = file.read(count * kind.itemsize)
    return np.frombuffer(raw, kind, count).astype(np.int64)
