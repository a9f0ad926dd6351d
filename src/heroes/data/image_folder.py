"""Any images in folders by class: `train/<class>/*` and `test/<class>/*`, or only `<class>/*`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from heroes import seeds
from heroes.data.datasets import DataOptions, Dataset, data_directory
from heroes.data.examples import Examples
from heroes.data.image_cache import cached
from heroes.data.images import ImageTransform
from heroes.data.validation import apart
from heroes.errors import DataError, did_you_mean
from heroes.messages import Integers

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_ENDINGS = (".jpeg", ".jpg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff")
_FOR_TESTING = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class ImageFiles:
    """The files of a split and the class number of each."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]

    def only(self, places: Integers) -> ImageFiles:
        """Those at these places of the list."""
        return ImageFiles(tuple(self.paths[n] for n in places), tuple(self.labels[n] for n in places))


def load(options: DataOptions) -> Dataset:
    """Any folder of images by class; decoded once to one size, flipped on the fly; see docs/data.md."""
    layout = "train/<class>/* and test/<class>/*, or <class>/*"
    if options.source is None:
        raise DataError(
            f"data.name is 'images', but data.source is not set: it should be a folder with {layout}"
        )
    root = options.source.expanduser()
    if not root.is_dir():
        raise DataError(f"data.source is {str(root)!r}, which is no folder; it should be one with {layout}")
    inside = [root / name for name in _FOR_TESTING if (root / name).is_dir()]
    test = options.test.expanduser() if options.test is not None else next(iter(inside), None)
    train = root / "train" if (root / "train").is_dir() else root
    if test is None and train == root:
        return _apart(root, options)
    if test is None or not test.is_dir():
        where = root if test is None else test
        raise DataError(f"{str(where)!r} has nothing to test on; there should be test/<class>/* beside train")
    classes = chosen(train, options.classes)
    if strange := [name for name in chosen(test, ()) if name not in classes and not options.classes]:
        raise DataError(f"{test} has the class {strange[0]!r}, but {train} has not; take it away, or add it")
    _check(train, image_files(train, classes), classes)
    return in_two_folders(train, test, classes, options, "images")


def chosen(train: Path, wanted: Sequence[str]) -> tuple[str, ...]:
    """The classes asked for, or all there are, by name."""
    there = sorted(p.name for p in train.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not there:
        raise DataError(f"{train} has no class folders; it should have a folder of images for every class")
    for name in wanted:
        if name not in there:
            raise DataError(f"{train} has no class {name!r}: {did_you_mean(name, there[:200])}")
    return tuple(wanted) or tuple(there)


def in_two_folders(
    train: Path, test: Path, classes: Sequence[str], options: DataOptions, name: str
) -> Dataset:
    """The images of these classes in a folder to learn from and one to test on."""
    parts = ((train, image_files(train, classes)), (test, image_files(test, classes)))
    return _dataset(parts, classes, options, name)


def _apart(root: Path, options: DataOptions) -> Dataset:
    """Images without a part to test on: a share of every class is, the same every time."""
    classes = chosen(root, options.classes)
    files = image_files(root, classes)
    _check(root, files, classes)
    rng = seeds.stream(0, "data", "test share")
    train, test = apart(np.array(files.labels), options.test_share, rng, "data.test_share")
    return _dataset(((root, files.only(train)), (root, files.only(test))), classes, options, "images")


def _check(folder: Path, files: ImageFiles, classes: Sequence[str]) -> None:
    """A DataError unless there are two classes or more, with images."""
    for label, name in enumerate(classes):
        if label not in files.labels:
            raise DataError(f"{folder / name} has no images; every class needs some, or take the folder away")
    if len(classes) == 1:
        raise DataError(
            f"{folder} has one class, the folder {classes[0]!r}: there is nothing to tell apart. Every class "
            f"needs a folder of its own; if they are in {classes[0]!r}, give {folder / classes[0]}"
        )


def _dataset(
    parts: Sequence[tuple[Path, ImageFiles]], classes: Sequence[str], options: DataOptions, name: str
) -> Dataset:
    """The images of two lists of files, decoded; those of the first are varied while they are learnt from."""
    (train, missed), (test, skipped) = (
        _examples(split, files, options, name, ImageTransform(MEAN, STD, flip=options.augment and n == 0))
        for n, (split, files) in enumerate(parts)
    )
    return Dataset(train, test, class_names=tuple(classes), skipped=missed + skipped)


def image_files(split: Path, classes: Sequence[str]) -> ImageFiles:
    """Every image of these classes, class by class, by name; also in subfolders (Tiny-ImageNet has one)."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(p for p in (split / name).rglob("*") if p.suffix.lower() in _ENDINGS)
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise DataError(
            f"{split} has no images of the {len(classes)} classes; it must have a folder of images for every "
            "class"
        )
    return ImageFiles(tuple(paths), tuple(labels))


def _examples(
    split: Path, files: ImageFiles, options: DataOptions, name: str, transform: ImageTransform
) -> tuple[Examples, tuple[str, ...]]:
    """The images of these files as bytes, and the files that could not be read."""
    if options.size < 1:
        raise DataError(f"the image size is {options.size}; it must be at least 1")
    key = _key(split, files, options.size)
    folder = data_directory(options.directory) / "cache" / f"{name}-{split.name}-{options.size}-{key}"
    cache = cached(folder, files.paths, options.size, options.progress)
    kind = np.uint8 if max(files.labels) < 256 else np.int32
    labels = np.array(files.labels, dtype=kind)[list(cache.kept)]
    return Examples(torch.from_numpy(cache.images), torch.from_numpy(labels), transform), cache.skipped


def _key(split: Path, files: ImageFiles, size: int) -> str:
    """Names a cache after where the images lie, which they are and how large they become."""
    digest = hashlib.sha256(f"{split.resolve()}\0{size}".encode())
    for path, label in zip(files.paths, files.labels, strict=True):
        digest.update(f"\0{path.relative_to(split)}\0{label}\0{path.stat().st_size}".encode())
    return digest.hexdigest()[:16]
