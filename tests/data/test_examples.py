"""Examples, shares and the bundled digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from heroes.data import Examples, Shares, from_dataset, load_digits
from heroes.errors import DataError


def test_a_batch_holds_the_rows_asked_for():
    examples = Examples(torch.arange(8.0).view(4, 2), torch.tensor([0, 1, 2, 3]))
    inputs, targets = examples.batch(np.array([2, 0]), torch.device("cpu"))
    assert inputs.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert targets.tolist() == [2, 0]
    assert len(examples) == 4


@pytest.mark.parametrize(
    ("inputs", "targets", "text"),
    [
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), "3 inputs but 2 targets"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "no examples"),
        (
            torch.zeros(2, 2),
            torch.zeros(2, dtype=torch.complex64),
            "whole numbers or floats, not torch.complex64",
        ),
        (torch.zeros(2, 2), torch.tensor(1), "one row for each example"),
    ],
)
def test_examples_that_cannot_be_learned_from_are_refused(inputs, targets, text):
    with pytest.raises(DataError, match=text):
        Examples(inputs, targets)


def test_shares_give_every_client_its_part():
    shares = Shares.of([np.array([5, 1]), np.array([2]), np.array([0, 3, 4])])
    assert len(shares) == 3
    assert [shares[n].tolist() for n in range(3)] == [[5, 1], [2], [0, 3, 4]]


def test_examples_come_from_any_dataset_of_pairs():
    dataset = TensorDataset(torch.arange(6.0).view(3, 2), torch.tensor([2, 0, 1]))
    examples = from_dataset(dataset)
    assert examples.inputs.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert examples.targets.tolist() == [2, 0, 1]
    assert examples.targets.dtype == torch.int64


def test_an_empty_dataset_is_refused():
    with pytest.raises(DataError, match="empty"):
        from_dataset(TensorDataset(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)))


def test_digits_are_split_once_and_for_all_with_a_fifth_of_every_class_for_testing():
    train, test = load_digits()
    again, _ = load_digits()
    assert len(train) + len(test) == 1797
    assert train.inputs.shape[1:] == test.inputs.shape[1:] == (1, 8, 8)
    assert torch.equal(train.inputs, again.inputs)
    in_train, in_test = (torch.bincount(part.targets, minlength=10) for part in (train, test))
    assert (in_test.double() / (in_train + in_test) - 0.2).abs().max() < 0.005
    assert (train.inputs.min().item(), train.inputs.max().item()) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("inputs", "targets", "said"),
    [
        ([[1.0]], [0], "torch tensors, not list and list"),
        (torch.zeros(2, 3), torch.tensor([0, -1]), "class numbers from 0, not -1"),
    ],
)
def test_examples_of_the_wrong_kind_are_refused(inputs, targets, said):
    with pytest.raises(DataError, match=said):
        Examples(inputs, targets)


@pytest.mark.parametrize(
    ("targets", "kind", "classes"),
    [
        (torch.tensor([0, 1, 2], dtype=torch.uint8), torch.int64, True),
        (torch.tensor([True, False, True]), torch.int64, True),
        (torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64), torch.float32, False),
        (torch.zeros(3, 2), torch.float32, False),
        (torch.tensor([[0, 4], [1, 1], [2, 2]], dtype=torch.int32), torch.int64, False),
    ],
)
def test_targets_are_classes_floats_or_rows_of_tokens(targets, kind, classes):
    examples = Examples(torch.zeros(3, 2), targets)
    _, batch = examples.batch(np.array([2, 0]), torch.device("cpu"))
    assert batch.dtype == kind
    assert batch.tolist() == targets[[2, 0]].tolist()
    assert examples.are_classes == classes


def test_a_dataset_may_have_floats_as_targets():
    examples = from_dataset([([1.0], 0.5), ([2.0], 1.5)])
    assert examples.targets.dtype == torch.float32
    assert examples.targets.tolist() == [0.5, 1.5]


def test_a_dataset_whose_items_are_not_pairs_is_refused():
    with pytest.raises(DataError, match="pairs of an input and a target"):
        from_dataset([{"x": 1, "y": 2, "z": 3}])
