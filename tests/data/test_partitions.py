"""How examples are shared out: nobody empty, nothing twice, proportions as asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heroes import seeds
from heroes.data import PARTITIONS, share_out
from heroes.errors import DataError

LEVELS = {"iid": 0.0, "gamma": 40.0, "dirichlet": 0.3}


def shared(name, labels, clients, level=None, seed=0):
    return share_out(name, labels, clients, seeds.stream(seed, "partition"), LEVELS[name] if level is None else level)


def test_the_levels_above_name_every_partition():
    assert LEVELS.keys() == PARTITIONS.keys()


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    labels = np.array(draw(st.lists(st.integers(0, 5), min_size=1, max_size=150)))
    return labels, draw(st.integers(1, len(labels)))


@given(st.sampled_from(["iid", "dirichlet"]), labelled(), st.floats(0.01, 100.0), st.integers(0, 5))
def test_iid_and_dirichlet_use_every_example_once_and_leave_nobody_empty(name, case, level, seed):
    labels, clients = case
    shares = shared(name, labels, clients, level, seed)
    assert len(shares) == clients
    assert all(len(shares[n]) > 0 for n in range(clients))
    assert sorted(np.concatenate([shares[n] for n in range(clients)]).tolist()) == list(range(len(labels)))


@given(labelled(), st.integers(0, 5))
def test_iid_shares_differ_in_size_by_one_at_most(case, seed):
    labels, clients = case
    sizes = np.diff(shared("iid", labels, clients, seed=seed).starts)
    assert sizes.max() - sizes.min() <= 1


@given(labelled(), st.floats(0.0, 100.0), st.integers(0, 5))
def test_gamma_shares_are_disjoint_equal_in_size_and_not_empty(case, level, seed):
    labels, clients = case
    try:
        shares = shared("gamma", labels, clients, level, seed)
    except DataError:
        assume(False)
    everything = np.concatenate([shares[n] for n in range(clients)])
    assert len(set(everything.tolist())) == len(everything)
    assert set(everything.tolist()) <= set(range(len(labels)))
    sizes = np.diff(shares.starts)
    assert sizes.min() == sizes.max() >= 1


@given(st.integers(2, 6), st.integers(1, 25), st.floats(0.0, 100.0))
def test_gamma_keeps_its_proportions_up_to_whole_examples(classes, clients, level):
    labels = np.repeat(np.arange(classes), 60)
    shares = shared("gamma", labels, clients, level)
    for n in range(clients):
        counts = np.bincount(labels[shares[n]], minlength=classes)
        size = counts.sum()
        main = n % classes
        assert abs(counts[main] - level / 100 * size) <= 0.5
        others = np.delete(counts, main)
        assert others.max() - others.min() <= 1


def test_gamma_by_hand():
    labels = np.repeat(np.arange(5), 100)
    shares = shared("gamma", labels, 10, 40.0)
    counts = np.stack([np.bincount(labels[shares[n]], minlength=5) for n in range(10)])
    assert counts.sum(axis=1).tolist() == [50] * 10  # all of it: 40 % of 50 are 20, 30 are left for four classes
    assert counts.diagonal().tolist() == [20] * 5
    assert set(counts[0, 1:].tolist()) == {7, 8}


def test_gamma_gives_smaller_shares_when_a_class_is_rare():
    labels = np.array([0] * 90 + [1] * 10)
    shares = shared("gamma", labels, 2, 80.0)
    counts = np.stack([np.bincount(labels[shares[n]], minlength=2) for n in range(2)])
    assert counts.sum(axis=0)[1] <= 10
    assert counts.tolist() == [[8, 2], [2, 8]]  # client 1 wants 80 % of the rare class


def test_gamma_of_one_class_gives_everyone_the_same_number():
    assert np.diff(shared("gamma", np.zeros(10, dtype=np.int64), 3, 40.0).starts).tolist() == [3, 3, 3]


def test_gamma_that_cannot_be_met_says_so():
    labels = np.array([0] * 9 + [1])
    with pytest.raises(DataError, match="use fewer clients"):
        shared("gamma", labels, 10, 100.0)


def test_dirichlet_is_less_even_at_small_levels():
    labels = np.repeat(np.arange(10), 100)

    def unevenness(level):
        shares = shared("dirichlet", labels, 10, level)
        return np.std([np.bincount(labels[shares[n]], minlength=10) for n in range(10)])

    assert unevenness(0.1) > 3 * unevenness(100.0)


@pytest.mark.parametrize("name", LEVELS)
def test_shares_depend_on_the_seed_and_nothing_else(name):
    labels = np.arange(200) % 4
    one, same, other = (shared(name, labels, 7, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.order, same.order)
    assert np.array_equal(one.starts, same.starts)
    assert not np.array_equal(one.order, other.order)


@pytest.mark.parametrize("name", LEVELS)
def test_as_many_clients_as_examples_get_one_each(name):
    labels = np.arange(12) % 4
    level = 100.0 if name == "gamma" else None
    assert np.diff(shared(name, labels, 12, level).starts).tolist() == [1] * 12


@pytest.mark.parametrize("name", LEVELS)
def test_more_clients_than_examples_is_refused(name):
    with pytest.raises(DataError, match="11 clients cannot share 10 examples; use at most 10 clients"):
        shared(name, np.zeros(10, dtype=np.int64), 11)


def test_an_unknown_partition_is_refused_with_the_nearest_name():
    with pytest.raises(DataError, match="unknown partition 'gama': did you mean 'gamma'"):
        share_out("gama", np.zeros(10, dtype=np.int64), 2, seeds.stream(0), 40.0)
