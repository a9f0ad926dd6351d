"""The files of CIFAR-10 and CIFAR-100, as a folder or as the archive they are published in."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Cifar:
    """How one of them is laid out: its folder, files, the key of its labels, and what its pixels are like."""

    title: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: bytes
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    largest: int  # bytes of one file

    @property
    def files(self) -> str:
        return f"{self.train[0]} to {len(self.train)}" if len(self.train) > 1 else self.train[0]


def load(kind: Cifar, name: str, options: DataOptions) -> Dataset:
    """The images; those to learn from are flipped and cropped."""
    plain = ImageTransform(kind.mean, kind.std)
    varied = ImageTransform(kind.mean, kind.std, flip=True, padding=4) if options.augment else plain
    with _folder(kind, options.root(name)) as folder:
        return Dataset(
            train=Examples(*_batches(kind, [folder / name for name in kind.train]), varied),
            test=Examples(*_batches(kind, [folder / name for name in kind.test]), plain),
            class_names=kind.classes,
        )


@contextmanager
def _folder(kind: Cifar, root: Path) -> Iterator[Path]:
    """The folder with the files: the root, one inside it, or what an archive holds."""
    if root.is_file():
        with TemporaryDirectory(prefix="heroes-") as scratch:
            archives.unpack(root, Path(scratch), only=(*kind.train, *kind.test), largest=kind.largest)
            yield _inside(kind, Path(scratch), root)
    elif archive := next((p for p in sorted(root.iterdir()) if archives.is_archive(p)), None):
        try:
            found = _inside(kind, root, root)
        except DataError:
            with _folder(kind, archive) as found:
                yield found
        else:
            yield found
    else:
        yield _inside(kind, root, root)


def _inside(kind: Cifar, folder: Path, said: Path) -> Path:
    for candidate in (folder, folder / kind.folder, *sorted(p for p in folder.iterdir() if p.is_dir())):
        if (candidate / kind.train[0]).is_file():
            return candidate
    raise DataError(
        f"{said} holds no {kind.title}: there must be a folder {kind.folder} with the files {kind.files} and "
        f"{kind.test[0]}"
    )


def _batches(kind: Cifar, paths: list[Path]) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels of these files, reading one file into memory at a time."""
    # never too little; what is not written to takes no memory
    room = sum(_size(kind, path) // _PIXELS for path in paths)
    images, labels = np.empty((room, _PIXELS), dtype=np.uint8), np.empty(room, dtype=np.uint8)
    end = 0
    for path in paths:
        pixels, classes = _batch(kind, path)
        start, end = end, end + len(pixels)
        images[start:end], labels[start:end] = pixels, classes
    return torch.from_numpy(images[:end]).view(-1, 3, 32, 32), torch.from_numpy(labels[:end])


def _size(kind: Cifar, path: Path) -> int:
    if not path.is_file():
        raise DataError(f"{path} is missing; {kind.title} has the files {kind.files} and {kind.test[0]}")
    size = path.stat().st_size
    if not 0 < size <= kind.largest:
        raise DataError(
            f"{path} has {size} bytes; a {kind.title} batch has more than 0 and at most {kind.largest}"
        )
    return size


def _batch(kind: Cifar, path: Path) -> tuple[Bytes, Bytes]:
    """The pixels (n, 3072) and labels (n,) of one file."""
    try:
        with path.open("rb") as file:
            tree = cifar_pickle.read(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        return _checked(tree.get(b"data"), tree.get(kind.labels), len(kind.classes))
    except ValueError as error:
        raise DataError(f"{path} is not a {kind.title} batch: {error}") from error


def _checked(data: Any, labels: Any, classes: int) -> tuple[Bytes, Bytes]:
    pixels = data.array() if isinstance(data, ArrayRecord) else None
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise ValueError(f"its data must be bytes of shape (n, {_PIXELS})")
    if not isinstance(labels, list) or not all(
        type(label) is int and 0 <= label < classes for label in labels
    ):
        raise ValueError(f"its labels must be a list of numbers from 0 to {classes - 1}")
    if len(labels) != len(pixels):
        raise ValueError(f"there are {len(pixels)} images but {len(labels)} labels")
    return pixels, np.array(labels, dtype=np.uint8)
