"""The digits that come with heroes are scikit-learn's, to the bit."""

from __future__ import annotations

import numpy as np
import torch

from heroes.data.digits import load_digits


def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits as reference

    images, labels = reference(return_X_y=True)
    train, test = load_digits()
    assert (len(train), len(test)) == (1438, 359)
    wanted = torch.from_numpy(images.astype(np.float32)).view(-1, 1, 8, 8) / 8.0 - 1.0
    for examples in (train, test):
        places = [int((wanted == image).flatten(1).all(1).nonzero()[0]) for image in examples.inputs]
        assert places == sorted(places)
        assert examples.targets.tolist() == labels[places].tolist()
    used = np.concatenate([examples.inputs.flatten(1).numpy() for examples in (train, test)])
    assert np.array_equal(np.unique(used, axis=0), np.unique(wanted.flatten(1).numpy(), axis=0))
