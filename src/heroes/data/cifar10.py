"""CIFAR-10 from `cifar-10-batches-py`, as a folder or as the archive it is published in."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heroes.data import archives, cifar_pickle
from heroes.data.cifar_pickle import ArrayRecord
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.examples import Bytes, Examples
from heroes.data.images import ImageTransform
from heroes.errors import DataError

FOLDER = "cifar-10-batches-py"
_TRAIN = tuple(f"data_batch_{n}" for n in range(1, 6))
_TEST = ("test_batch",)
_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_LARGEST = 100_000_000  # bytes of one batch file; the official ones have 31 million
_PIXELS = 3 * 32 * 32


def load(options: DataOptions) -> Dataset:
    """CIFAR-10: 60,000 photographs of 32x32 in ten classes; training images are flipped and cropped."""
    plain = ImageTransform(_MEAN, _STD)
    varied = ImageTransform(_MEAN, _STD, flip=True, padding=4) if options.augment else plain
    with _folder(options.root("cifar10")) as folder:
        return Dataset(
            train=Examples(*_batches([folder / name for name in _TRAIN]), varied),
            test=Examples(*_batches([folder / name for name in _TEST]), plain),
            class_names=_NAMES,
        )


@contextmanager
def _folder(root: Path) -> Iterator[Path]:
    """The folder with the six batches: the root, one inside it, or what an archive holds."""
    if root.is_file():
        with TemporaryDirectory(prefix="heroes-") as scratch:
            archives.unpack(root, Path(scratch), only=(*_TRAIN, *_TEST), largest=_LARGEST)
            yield _inside(Path(scratch), root)
    elif archive := next((p for p in sorted(root.iterdir()) if archives.is_archive(p)), None):
        try:
            found = _inside(root, root)
        except DataError:
            with _folder(archive) as found:
                yield found
        else:
            yield found
    else:
        yield _inside(root, root)


def _inside(folder: Path, said: Path) -> Path:
    for candidate in (folder, folder / FOLDER, *sorted(p for p in folder.iterdir() if p.is_dir())):
        if (candidate / _TRAIN[0]).is_file():
            return candidate
    raise DataError(
        f"{said} holds no CIFAR-10: there must be a folder {FOLDER} with the files {_TRAIN[0]} to 5 and "
        f"{_TEST[0]}"
    )


def _batches(paths: list[Path]) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels of these files, reading one file into memory at a time."""
    # never too little; what is not written to takes no memory
    room = sum(_size(path) // _PIXELS for path in paths)
    images, labels = np.empty((room, _PIXELS), dtype=np.uint8), np.empty(room, dtype=np.uint8)
    end = 0
    for path in paths:
        pixels, classes = _batch(path)
        start, end = end, end + len(pixels)
        images[start:end], labels[start:end] = pixels, classes
    return torch.from_numpy(images[:end]).view(-1, 3, 32, 32), torch.from_numpy(labels[:end])


def _size(path: Path) -> int:
    if not path.is_file():
        raise DataError(f"{path} is missing; CIFAR-10 has the files {_TRAIN[0]} to 5 and {_TEST[0]}")
    size = path.stat().st_size
    if not 0 < size <= _LARGEST:
        raise DataError(f"{path} has {size} bytes; a CIFAR-10 batch has more than 0 and at most {_LARGEST}")
    return size


def _batch(path: Path) -> tuple[Bytes, Bytes]:
    """The pixels (n, 3072) and labels (n,) of one file."""
    try:
        with path.open("rb") as file:
            tree = cifar_pickle.read(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        return _checked(tree.get(b"data"), tree.get(b"labels"))
    except ValueError as error:
        raise DataError(f"{path} is not a CIFAR-10 batch: {error}") from error


def _checked(data: Any, labels: Any) -> tuple[Bytes, Bytes]:
    pixels = data.array() if isinstance(data, ArrayRecord) else None
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise ValueError(f"its data must be bytes of shape (n, {_PIXELS})")
    if not isinstance(labels, list) or not all(
        type(label) is int and 0 <= label < len(_NAMES) for label in labels
    ):
        raise ValueError(f"its labels must be a list of numbers from 0 to {len(_NAMES) - 1}")
    if len(labels) != len(pixels):
        raise ValueError(f"there are {len(pixels)} images but {len(labels)} labels")
    return pixels, np.array(labels, dtype=np.uint8)
