"""8x8 handwritten digits that come with heroes: 1,797 images, no download.

The test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine Learning
Repository, 1998, CC BY 4.0), in the order in which scikit-learn has it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from heroes import seeds
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.examples import Examples

_FILE = Path(__file__).with_name("digits.npz")
_TEST_SHARE = 0.2


def load(options: DataOptions) -> Dataset:
    """1,797 handwritten digits of 8x8, which come with heroes: needs no download."""
    return Dataset(*load_digits(), class_names=tuple(str(digit) for digit in range(10)))


def load_digits() -> tuple[Examples, Examples]:
    """Training and test examples, the same split every time; 20 % of every class is for testing."""
    with np.load(_FILE, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    rng = seeds.stream(0, "digits", "split")
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        test[members[: round(_TEST_SHARE * len(members))]] = True
    inputs = torch.from_numpy(images.astype(np.float32)).view(-1, 1, 8, 8) / 8.0 - 1.0
    targets = torch.from_numpy(labels.astype(np.int64))
    return Examples(inputs[~test], targets[~test]), Examples(inputs[test], targets[test])
