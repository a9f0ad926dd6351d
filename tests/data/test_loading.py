"""Data sets by name, and test sets cut short."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from heroes.data import DATASETS, DataOptions, load, load_digits
from heroes.data.registry import REGISTRY
from heroes.errors import ConfigError, DataError


def test_every_data_set_can_be_got_or_needs_no_download():
    assert DATASETS.keys() == REGISTRY.keys() | {"digits", "images", "table", "text"}
    assert all((loader.__doc__ or "").strip() for loader in DATASETS.values())


def test_digits_by_name_are_the_bundled_ones():
    data = load("digits")
    train, test = load_digits()
    assert torch.equal(data.train.inputs, train.inputs)
    assert torch.equal(data.test.targets, test.targets)
    assert data.class_names == tuple("0123456789")


def test_fewer_test_examples_are_drawn_by_the_seed():
    one, same, other = (load("digits", DataOptions(test_limit=50, seed=seed)).test for seed in (1, 1, 2))
    assert len(one) == 50
    assert torch.equal(one.inputs, same.inputs)
    assert not torch.equal(one.inputs, other.inputs)
    assert len(load("digits", DataOptions(test_limit=10**6)).test) == len(load_digits()[1])
    with pytest.raises(DataError, match="at least 1"):
        load("digits", DataOptions(test_limit=0))


def test_an_unknown_data_set_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"data\.name is 'digit': did you mean 'digits'"):
        load("digit")


def test_transforms_can_travel_to_another_process(idx_folder):
    """Engines with processes send examples along."""
    examples = load("mnist", DataOptions(source=idx_folder)).train
    copy = pickle.loads(pickle.dumps(examples))  # noqa: S301
    rows = np.arange(3)
    assert torch.equal(copy.batch(rows, torch.device("cpu"))[0], examples.batch(rows, torch.device("cpu"))[0])
