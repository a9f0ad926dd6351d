"""scikit-learn's bundled 8x8 handwritten digits: 1,797 images, no download."""

from __future__ import annotations

import numpy as np
import torch

from heroes import seeds
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.examples import Examples

_TEST_SHARE = 0.2


def load(options: DataOptions) -> Dataset:
    """scikit-learn's 1,797 handwritten digits of 8x8: needs no download."""
    return Dataset(*load_digits(), class_names=tuple(str(digit) for digit in range(10)))


def load_digits() -> tuple[Examples, Examples]:
    """Training and test examples, the same split every time; 20 % of every class is for testing."""
    from sklearn.datasets import load_digits as bundled

    images, labels = bundled(return_X_y=True)
    rng = seeds.stream(0, "digits", "split")
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        test[members[: round(_TEST_SHARE * len(members))]] = True
    inputs = torch.from_numpy(images.astype(np.float32)).view(-1, 1, 8, 8) / 8.0 - 1.0
    targets = torch.from_numpy(labels.astype(np.int64))
    return Examples(inputs[~test], targets[~test]), Examples(inputs[test], targets[test])
