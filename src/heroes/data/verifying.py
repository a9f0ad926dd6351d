"""Whether a data set on disk is what it should be: it is loaded as a run would, and its content hashed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch import Tensor

from heroes.data import image_folder, imagenet100
from heroes.data.datasets import DataOptions, Dataset, Progress, data_directory
from heroes.data.image_cache import unreadable
from heroes.data.loading import load
from heroes.data.registry import public_data
from heroes.errors import DataError

_PIECE = 10_000  # rows

# Of pixels (or text) and labels, so that it does not matter how the files are packed.
CONTENTS: dict[str, str] = {
    "cifar10": "58faef7e467ee0860a93acdc9dcf6e90f83e3f55e8d4b7818f77d70931960668",
    "mnist": "7ea4b60ae284dd6359a4172ef4aae04c62afcbff9a2216f9d9dcef92d9e6e65a",
    "fashion_mnist": "0d4cb3481198bde1be79772ffc4d10b0dd7b433838f2f169b80790157532b427",
    "shakespeare": "cc92d626e67554812fefe6a62d958a99775ba85b102052acec6fb5d1409ac4bc",
}


@dataclass(frozen=True)
class Verdict:
    """What was found: nothing, something unreadable, readable but not the official content, or all right."""

    name: str
    path: Path
    state: Literal["missing", "broken", "other", "ok"]
    detail: str


def verify(
    name: str,
    directory: str | Path | None = None,
    source: str | Path | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Load all of a data set, and compare its content with the official one if that is known.

    Args:
        name: of the data set.
        directory: the data directory, if not the usual one.
        source: where it lies, if not there.
        progress: hears how far it is.
    """
    public_data(name)
    options = DataOptions(
        directory=data_directory(directory), source=Path(source) if source else None, progress=progress
    )
    path = options.source or data_directory(directory) / name
    if not path.exists():
        return Verdict(name, path, "missing", f"nothing at {path}")
    try:
        return (
            _images(path, progress) if name == "imagenet100" else _contents(name, path, load(name, options))
        )
    except DataError as error:
        return Verdict(name, path, "broken", str(error))


def _contents(name: str, path: Path, dataset: Dataset) -> Verdict:
    counts = f"{len(dataset.train):,} training and {len(dataset.test):,} test examples"
    if name not in CONTENTS:
        return Verdict(name, path, "ok", f"{counts}; what the official content hashes to is not known here")
    if content_of(dataset) != CONTENTS[name]:
        return Verdict(
            name, path, "other", f"{counts}; it can be used, but its content is not the official one"
        )
    return Verdict(name, path, "ok", f"{counts}, the official content")


def _images(path: Path, progress: Progress | None) -> Verdict:
    """There are many ImageNet-100s: what can be checked is that every image can be read."""
    root = imagenet100.find_root(path)
    classes = imagenet100.choose_classes(root / "train", ())
    files = [
        file for split in ("train", "val") for file in image_folder.image_files(root / split, classes).paths
    ]
    broken = unreadable(files, progress)
    counts = f"{len(files):,} images in {len(classes)} classes"
    if broken:
        return Verdict(
            "imagenet100",
            path,
            "broken",
            f"{counts}, of which {len(broken)} cannot be read: {'; '.join(broken[:5])}",
        )
    return Verdict("imagenet100", path, "ok", counts)


def content_of(dataset: Dataset) -> str:
    """A hash of what the examples hold, whatever they were packed in."""
    digest = hashlib.sha256()
    for examples in (dataset.train, dataset.test):
        plain = replace(examples, transform=None)
        for column in (plain.inputs, plain.targets, *_text(examples.transform)):
            digest.update(f"{tuple(column.shape)}".encode())
            for start in range(0, len(column), _PIECE):
                digest.update(column[start : start + _PIECE].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _text(transform: object) -> tuple[Tensor, ...]:
    """Where examples are positions, the text they point into is content too."""
    text = getattr(transform, "text", None)
    return (text,) if isinstance(text, Tensor) else ()
