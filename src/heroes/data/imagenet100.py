"""A hundred classes of ImageNet, or any folder of images laid out as `train/<class>/*`, `val/<class>/*`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from heroes.data.datasets import DataOptions, Dataset, data_directory
from heroes.data.examples import Examples
from heroes.data.image_cache import ImageCache, cached
from heroes.data.images import ImageTransform
from heroes.errors import DataError, did_you_mean

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLASSES = 100
_ENDINGS = (".jpeg", ".jpg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff")


@dataclass(frozen=True)
class ImageFiles:
    """The files of a split and the class number of each."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]


def load(options: DataOptions) -> Dataset:
    """A hundred classes of ImageNet, or any folder of images by class; decoded once, flipped on the fly."""
    if options.size < 1:
        raise DataError(f"the image size is {options.size}; it must be at least 1")
    root = find_root(options.root("imagenet100"))
    classes = choose_classes(root / "train", options.classes)
    plain = ImageTransform(_MEAN, _STD)
    varied = ImageTransform(_MEAN, _STD, flip=True) if options.augment else plain
    caches = data_directory(options.directory) / "cache"
    train, train_cache = _split(root / "train", classes, options, caches, varied)
    test, test_cache = _split(root / "val", classes, options, caches, plain)
    return Dataset(train, test, class_names=classes, skipped=train_cache.skipped + test_cache.skipped)


def find_root(source: Path) -> Path:
    """The folder that holds `train` and `val`: the source, or the only folder inside it that does."""
    if source.is_file():
        raise DataError(
            f"{source} is a file; unpack it by `heroes data get imagenet100`, or give a folder with train "
            "and val"
        )
    for folder in (source, *sorted(p for p in source.iterdir() if p.is_dir())):
        if (folder / "train").is_dir() and (folder / "val").is_dir():
            return folder
    raise DataError(f"{source} has no folders train and val, with a folder of images for every class in each")


def choose_classes(train: Path, wanted: Sequence[str]) -> tuple[str, ...]:
    """The classes asked for, or the first hundred by name."""
    there = sorted(p.name for p in train.iterdir() if p.is_dir())
    if not there:
        raise DataError(f"{train} has no class folders")
    for name in wanted:
        if name not in there:
            raise DataError(f"{train} has no class {name!r}: {did_you_mean(name, there[:200])}")
    if len(set(wanted)) != len(wanted) or len(wanted) > _CLASSES:
        raise DataError(f"{len(wanted)} classes were given; there may be up to {_CLASSES}, each once")
    return tuple(wanted) or tuple(there[:_CLASSES])


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


def _split(
    split: Path, classes: Sequence[str], options: DataOptions, caches: Path, transform: ImageTransform
) -> tuple[Examples, ImageCache]:
    files = image_files(split, classes)
    folder = caches / f"imagenet100-{split.name}-{options.size}-{_key(split, files, options.size)}"
    cache = cached(folder, files.paths, options.size, options.progress)
    labels = np.array(files.labels, dtype=np.uint8)[list(cache.kept)]
    return Examples(torch.from_numpy(cache.images), torch.from_numpy(labels), transform), cache


def _key(split: Path, files: ImageFiles, size: int) -> str:
    """Names a cache after where the images lie, which they are and how large they become."""
    digest = hashlib.sha256(f"{split.resolve()}\0{size}".encode())
    for path, label in zip(files.paths, files.labels, strict=True):
        digest.update(f"\0{path.relative_to(split)}\0{label}\0{path.stat().st_size}".encode())
    return digest.hexdigest()[:16]
