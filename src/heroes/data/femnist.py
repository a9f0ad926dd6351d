"""LEAF's FEMNIST: handwritten digits and letters of 28x28 in 62 classes; a client is a writer.

LEAF writes JSON files with `users` and `user_data`, a mapping from each user to `x`, rows of 784 numbers from
0 to 1, and `y`, class numbers. They are in `all_data`, or in `train` and `test` if LEAF has split them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from heroes.data.datasets import DataOptions, Dataset, Progress
from heroes.data.examples import Bytes, Examples
from heroes.data.images import ImageTransform
from heroes.data.validation import apart
from heroes.errors import DataError, said
from heroes.messages import Integers

NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_PIXELS = 28 * 28
_PIECE = 10_000  # images


@dataclass(frozen=True)
class Writer:
    """What one person wrote: images as bytes (n, 784), and labels (n,)."""

    name: str
    images: Bytes
    labels: Bytes


def load(options: DataOptions) -> Dataset:
    """LEAF's FEMNIST: handwritten digits and letters of 28x28; natural split by writer."""
    root = options.root("femnist")
    folder = root / "data" if (root / "data").is_dir() else root
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        train, test = _writers(folder / "train", options), _writers(folder / "test", options)
    else:
        every = _writers(folder / "all_data" if (folder / "all_data").is_dir() else folder, options)
        train, test = _split(every, options.test_share)
    owners = np.repeat(np.arange(len(train)), [len(each.labels) for each in train])
    transform = _transform(train)
    return Dataset(
        _examples(train, transform),
        _examples(test, transform),
        owners,
        NAMES,
        tuple(writer.name for writer in train),
    )


def _split(every: list[Writer], share: float) -> tuple[list[Writer], list[Writer]]:
    """The last part of what everyone wrote is to test on."""
    owners = np.repeat(np.arange(len(every)), [len(each.labels) for each in every])
    kept, held = apart(owners, share, None, "data.test_share")
    starts = np.cumsum([0, *(len(each.labels) for each in every)])
    parts = [
        [
            Writer(each.name, each.images[rows], each.labels[rows])
            for n, each in enumerate(every)
            if len(rows := _within(chosen, starts[n], starts[n + 1]))
        ]
        for chosen in (kept, held)
    ]
    return parts[0], parts[1]


def _within(rows: Integers, start: int, end: int) -> Integers:
    """Those of these rows that lie between, counted from the start."""
    between: Integers = rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)] - start
    return between


def _examples(writers: list[Writer], transform: ImageTransform) -> Examples:
    images = np.concatenate([writer.images for writer in writers]).reshape(-1, 1, 28, 28)
    labels = np.concatenate([writer.labels for writer in writers])
    return Examples(torch.from_numpy(images), torch.from_numpy(labels), transform)


def _transform(writers: list[Writer]) -> ImageTransform:
    """Normalises by the mean and deviation of all training pixels, which are counted exactly."""
    counts = np.zeros(256, dtype=np.int64)
    for writer in writers:
        for start in range(0, len(writer.images), _PIECE):
            counts += np.bincount(writer.images[start : start + _PIECE].ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = float((counts * values).sum() / counts.sum())
    deviation = float(np.sqrt((counts * (values - mean) ** 2).sum() / counts.sum()))
    return ImageTransform((mean,), (deviation or 1.0,))


def _writers(folder: Path, options: DataOptions) -> list[Writer]:
    """Everyone in the JSON files of a folder, file by file by name."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(
            f"{folder} holds no FEMNIST: there must be LEAF's files all_data/*.json, or train/*.json and "
            "test/*.json"
        )
    return list(_read_all(files, options.progress))


def _read_all(files: list[Path], progress: Progress | None) -> Iterator[Writer]:
    for number, path in enumerate(files, 1):
        yield from _read(path)
        if progress is not None:
            progress("reading FEMNIST", number, len(files))


def _read(path: Path) -> Iterator[Writer]:
    """The writers of one file. Images become bytes as soon as they are read: numbers take 30 times more."""
    try:
        tree = json.loads(path.read_bytes(), object_pairs_hook=_compact)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not one of LEAF's JSON files: {said(error)}") from None
    users, found = (tree.get(key) if isinstance(tree, dict) else None for key in ("users", "user_data"))
    if not isinstance(users, list) or not isinstance(found, dict):
        raise DataError(f"{path} has no 'users' and 'user_data', which LEAF's files have")
    for user in users:
        images, labels = found.get(str(user)) or (None, None)
        if not isinstance(images, np.ndarray) or not isinstance(labels, np.ndarray):
            why = images if isinstance(images, str) else "it needs x and y"
            raise DataError(f"{path}: user_data of {user!r} is wrong: {why}")
        if len(labels):
            yield Writer(str(user), images, labels)


def _compact(pairs: list[tuple[str, Any]]) -> Any:
    """A mapping, or if it is a writer's data, images and labels as bytes; else what is wrong with them."""
    tree = dict(pairs)
    if tree.keys() != {"x", "y"}:
        return tree
    try:
        pixels = np.array(tree["x"], dtype=np.float64).reshape(len(tree["y"]), _PIXELS)
        labels = np.array(tree["y"], dtype=np.int64)
    except (ValueError, TypeError):
        return f"x must be rows of {_PIXELS} numbers, one for each of y", None
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):
        return "x must be from 0 to 1", None
    if labels.size and not (labels.min() >= 0 and labels.max() < len(NAMES)):
        return f"y must be from 0 to {len(NAMES) - 1}", None
    return np.rint(pixels * 255).astype(np.uint8), labels.astype(np.uint8)
