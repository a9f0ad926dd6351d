"""A hundred classes of ImageNet, or any folder of images laid out as `train/<class>/*`, `val/<class>/*`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heroes.data.datasets import DataOptions, Dataset
from heroes.data.image_folder import chosen, in_two_folders
from heroes.errors import DataError

_CLASSES = 100


def load(options: DataOptions) -> Dataset:
    """A hundred classes of ImageNet, or any folder of images by class; decoded once, flipped on the fly."""
    root = find_root(options.root("imagenet100"))
    classes = choose_classes(root / "train", options.classes)
    return in_two_folders(root / "train", root / "val", classes, options, "imagenet100")


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
    if len(set(wanted)) != len(wanted) or len(wanted) > _CLASSES:
        raise DataError(f"{len(wanted)} classes were given; there may be up to {_CLASSES}, each once")
    return chosen(train, wanted)[:_CLASSES]
