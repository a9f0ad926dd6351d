"""CIFAR-10 from `cifar-10-batches-py`."""

from __future__ import annotations

from heroes.data import cifar_files
from heroes.data.datasets import DataOptions, Dataset

KIND = cifar_files.Cifar(
    "CIFAR-10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{n}" for n in range(1, 6)),
    test=("test_batch",),
    labels=b"labels",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    largest=100_000_000,  # the official files have 31 million
)


def load(options: DataOptions) -> Dataset:
    """CIFAR-10: 60,000 photographs of 32x32 in ten classes; training images are flipped and cropped."""
    return cifar_files.load(KIND, "cifar10", options)
