"""Fashion-MNIST from its idx files: 70,000 pictures of clothes, in the shape of MNIST but harder."""

from __future__ import annotations

from heroes.data import idx
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.images import ImageTransform

_NAMES = (
    "T-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_NORMAL = ImageTransform(mean=(0.2860,), std=(0.3530,))


def load(options: DataOptions) -> Dataset:
    """Fashion-MNIST: 70,000 pictures of clothes of 28x28 in ten classes."""
    folder = idx.folder_of(options.root("fashion_mnist"))
    train, test = (idx.examples(folder, split, len(_NAMES), _NORMAL) for split in ("train", "t10k"))
    return Dataset(train, test, class_names=_NAMES)
