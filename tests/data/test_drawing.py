"""Shares that clients draw from all examples: any number of clients, proportions as asked, the same bits
everywhere.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heroes import seeds
from heroes.data import DrawnShares, FederatedData, load_digits, share_out
from heroes.errors import DataError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), [100, 80, 60, 40, 20]))
LEVELS = {"iid": None, "gamma": 40.0, "dirichlet": 0.3, "missing": 2.0, "by_device": 60.0, "gamma_all": 40.0}


def drawn(
    name: str, clients: int = 10**6, size: int = 20, seed: int = 0, level: float | None = None
) -> DrawnShares:
    rng, wanted = seeds.stream(seed, "partition"), LEVELS.get(name) if level is None else level
    device_of = np.arange(clients) % 3
    shares = share_out(name, LABELS, clients, rng, wanted, device_of=device_of, examples_per_client=size)
    assert isinstance(shares, DrawnShares)
    return shares


def counts(shares: DrawnShares, client: int) -> np.ndarray:
    return np.bincount(LABELS[shares[client]], minlength=5)


@pytest.mark.parametrize("name", LEVELS)
@given(client=st.integers(0, 10**6 - 1), size=st.integers(1, 20))
def test_a_share_has_its_size_and_nothing_twice(name: str, client: int, size: int) -> None:
    share = drawn(name, size=size)[client]
    assert len(set(share.tolist())) == len(share) == size
    assert (share >= 0).all()
    assert (share < len(LABELS)).all()


@pytest.mark.parametrize("name", LEVELS)
def test_a_share_depends_on_the_seed_and_the_client_and_nothing_else(name: str) -> None:
    one, same, other = drawn(name), drawn(name), drawn(name, seed=1)
    sent = pickle.loads(pickle.dumps(one))  # noqa: S301 - as a spawned worker gets it
    ahead = [one[client].tolist() for client in (7, 8, 999_999)]
    assert ahead == [same[client].tolist() for client in (7, 8, 999_999)]
    assert ahead == [sent[client].tolist() for client in (999_999, 8, 7)][::-1]
    assert ahead[0] != ahead[1]
    assert ahead[0] != other[7].tolist()


def test_there_are_as_many_shares_as_clients() -> None:
    shares = drawn("iid", clients=3)
    assert len(shares) == 3
    with pytest.raises(IndexError):
        shares[3]


def test_gamma_gives_its_percentage_to_the_main_class_and_the_rest_evenly() -> None:
    shares = drawn("gamma", size=19)
    several = np.stack([counts(shares, client) for client in range(3, 400, 5)])  # their main class is 3
    assert (several[:, 3] == 8).all()
    others = np.delete(several, 3, axis=1)
    assert set(others.ravel().tolist()) == {2, 3}
    assert (
        others.mean(axis=0) > 2.5
    ).all()  # what is left over goes to all in turn: 11 of four classes are 2.75 each


def test_by_device_ties_the_main_class_to_the_device() -> None:
    shares = drawn("by_device")
    mains = [{int(counts(shares, client).argmax()) for client in range(device, 60, 3)} for device in range(3)]
    assert mains == [{0, 1}, {2, 3}, {4}]


def test_missing_lacks_as_many_classes_and_has_the_others_evenly() -> None:
    shares = drawn("missing")
    several = np.stack([counts(shares, client) for client in range(60)])
    assert ((several == 0).sum(axis=1) == 2).all()
    assert set(several[several > 0].tolist()) == {6, 7}
    assert ((several == 0).mean(axis=0) > 0.2).all()  # each class is lacked by some


def test_iid_and_dirichlet_have_all_classes_as_often_as_there_are_examples_of_them() -> None:
    for name in ("iid", "dirichlet"):
        shares = drawn(name)
        mean = np.mean([counts(shares, client) for client in range(2000)], axis=0)
        assert mean == pytest.approx(
            20 * np.bincount(LABELS) / len(LABELS), abs=0.1 if name == "iid" else 0.6
        )


def test_dirichlet_is_less_even_at_small_levels() -> None:
    tops = {
        level: np.mean([counts(drawn("dirichlet", level=level), n).max() for n in range(200)])
        for level in (0.01, 100.0)
    }
    assert tops[0.01] > 18
    assert tops[100.0] < 10


def test_a_class_with_too_few_examples_gives_some_twice() -> None:
    share = drawn("gamma", size=100, level=100.0)[4]  # the main class has 20
    assert np.bincount(LABELS[share], minlength=5).tolist() == [0, 0, 0, 0, 100]
    assert len(set(share.tolist())) <= 20


@pytest.mark.parametrize("size", [0, 301])
def test_more_examples_than_there_are_cannot_be_drawn(size: int) -> None:
    with pytest.raises(DataError, match="it should be 1 to 300"):
        drawn("iid", size=size)


def test_what_a_partition_needs_it_needs_here_too() -> None:
    with pytest.raises(DataError, match="'natural', which gives every client all that its owner made"):
        drawn("natural")
    for name, level in {"gamma": 101.0, "by_device": -1.0, "dirichlet": 0.0, "missing": 5.0}.items():
        with pytest.raises(DataError, match=rf"data\.\w+ is {level:g}; "):
            drawn(name, level=level)


def test_too_many_clients_are_told_of_the_way_out() -> None:
    with pytest.raises(
        DataError,
        match=r"clients is 301, but there are 300 examples .* data\.examples_per_client",
    ):
        share_out("iid", LABELS, 301, seeds.stream(0))


def test_drawn_shares_must_be_of_the_training_examples() -> None:
    train, test = load_digits()
    labels = np.zeros(len(train) + 1, dtype=np.int64)
    shares = share_out("iid", labels, 5000, seeds.stream(0), examples_per_client=3)
    with pytest.raises(DataError, match=f"only {len(train)} training examples"):
        FederatedData(train, test, shares)
    assert (
        len(
            FederatedData(
                train, test, share_out("iid", labels[1:], 5000, seeds.stream(0), examples_per_client=3)
            ).shares
        )
        == 5000
    )
