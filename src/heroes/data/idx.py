"""The idx format of MNIST and Fashion-MNIST, plain or gzipped: a short header, then one array of bytes."""

from __future__ import annotations

import gzip
import io
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch

from heroes.data.examples import Bytes, Examples, Transform
from heroes.errors import DataError

_BYTES = 8  # the code for unsigned bytes
_MOST_SHRUNK = 1032  # gzip cannot make a file smaller than by this factor
_PIECE = 1 << 20
_File = gzip.GzipFile | io.BufferedReader


def examples(folder: Path, split: str, classes: int, transform: Transform) -> Examples:
    """The images and labels of a split, "train" or "t10k"."""
    images = read(find(folder, f"{split}-images-idx3-ubyte"), 3)
    where = find(folder, f"{split}-labels-idx1-ubyte")
    labels = read(where, 1)
    if len(images) != len(labels):
        raise DataError(f"{folder} has {len(images)} {split} images but {len(labels)} labels")
    if len(labels) and labels.max() >= classes:
        raise DataError(f"{where} has the label {labels.max()}; labels go from 0 to {classes - 1}")
    return Examples(torch.from_numpy(images)[:, None], torch.from_numpy(labels), transform)


def find(folder: Path, name: str) -> Path:
    """The file of this name, gzipped or not; older copies have a dot before `idx`."""
    for candidate in (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    raise DataError(f"{folder} lacks the file {name} (or {name}.gz)")


def read(path: Path, dimensions: int) -> Bytes:
    """The array in an idx file. Sizes are checked before memory is taken, whatever the header claims."""
    try:
        size = path.stat().st_size
        with path.open("rb") as raw:
            gzipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if gzipped else path.open("rb") as file:
            shape = _shape(file, dimensions)
            wanted = prod(shape)
            if wanted > (size * _MOST_SHRUNK if gzipped else size):
                raise ValueError(
                    f"it claims {wanted} bytes of shape {shape}, more than a file of {size} bytes can hold"
                )
            return _contents(file, wanted).reshape(shape)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path} is not the idx file it should be: {error}") from error


def _shape(file: _File, dimensions: int) -> tuple[int, ...]:
    magic = file.read(4)
    if magic != bytes((0, 0, _BYTES, dimensions)):
        raise ValueError(f"it starts with {magic.hex()}, not {bytes((0, 0, _BYTES, dimensions)).hex()}")
    header = file.read(4 * dimensions)
    if len(header) != 4 * dimensions:
        raise ValueError("it ends within the header")
    return tuple(int(n) for n in np.frombuffer(header, dtype=">u4"))


def _contents(file: _File, wanted: int) -> Bytes:
    """Exactly so many bytes, read in pieces: memory grows with what is there, not what is claimed."""
    contents = bytearray()
    while piece := file.read(_PIECE):
        contents += piece
        if len(contents) > wanted:
            raise ValueError(f"it goes on after the {wanted} bytes it should hold")
    if len(contents) < wanted:
        raise ValueError(f"it holds {len(contents)} bytes of {wanted}")
    return np.frombuffer(contents, dtype=np.uint8)


def folder_of(root: Path) -> Path:
    """The folder with the idx files: the root itself, or the one place inside it that has them."""
    if root.is_file():
        raise DataError(
            f"{root} is a file; give the folder with the four idx files, or unpack it by `heroes data get`"
        )
    return next((p.parent for p in sorted(root.rglob("train-images*idx3-ubyte*")) if p.is_file()), root)
