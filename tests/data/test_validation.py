"""Examples held out of the training set: how many, whose, and that nothing else is tested on."""

import numpy as np
import pytest
import torch

import heroes
from heroes import seeds
from heroes.assemble.clients import at_clients
from heroes.assemble.elsewhere import received, sent
from heroes.assemble.own import Own
from heroes.assemble.world import federated
from heroes.data import Dataset, Examples, FederatedData, Shares, WholeShares, held_out, share_out
from heroes.errors import DataError
from heroes.settings.config import Config, parse

UNTOUCHED = Examples(torch.full((4, 2), float("nan")), torch.zeros(4, dtype=torch.int64))


def examples(labels: list[int]) -> Examples:
    """Every example is told by its number."""
    return Examples(torch.arange(2.0 * len(labels)).view(-1, 2), torch.tensor(labels))


def config(clients: int, **data: object) -> Config:
    return parse({"data": {"partition": "iid", **data}, "federation": {"clients": clients, "cohort": 1}})


def owned(data: FederatedData) -> set[int]:
    return {int(n) for client in range(len(data.shares)) for n in data.shares[client]}


def numbers(tested: Examples) -> list[int]:
    return [int(row[0]) // 2 for row in tested.inputs]


def test_every_class_gives_its_part_drawn_by_the_seed() -> None:
    data = Dataset(examples([0] * 20 + [1] * 40 + [2] * 10), UNTOUCHED)
    kept, held = held_out(data, 0.1, seeds.stream(3))
    assert sorted([*kept, *held]) == list(range(70))
    assert np.bincount(data.train.targets.numpy()[held]).tolist() == [2, 4, 1]
    assert held_out(data, 0.1, seeds.stream(3))[1].tolist() == held.tolist()
    assert held_out(data, 0.1, seeds.stream(4))[1].tolist() != held.tolist()


def test_small_classes_add_up_and_none_is_emptied() -> None:
    tens = held_out(Dataset(examples([n // 4 for n in range(40)]), UNTOUCHED), 0.1, seeds.stream(0))[1]
    assert len(tens) == 4
    kept, _ = held_out(Dataset(examples([0, 1, 1]), UNTOUCHED), 0.9, seeds.stream(0))
    assert set(kept) & {0} == {0}
    assert set(kept) & {1, 2}


def test_where_owners_are_known_the_last_of_each_are_held_out() -> None:
    owners = np.array([1, 0, 1, 0, 1, 0, 1, 0])
    _, held = held_out(Dataset(examples([0] * 8), UNTOUCHED, owners), 0.25, seeds.stream(0))
    assert held.tolist() == [6, 7]


def test_the_partition_is_over_the_rest_and_the_test_set_is_not_touched() -> None:
    data = Dataset(examples([0, 1] * 25), UNTOUCHED)
    shared = federated(config(5, validation=0.2), data, 7)
    held = numbers(shared.test)
    assert len(held) == 10
    assert owned(shared) == set(range(50)) - set(held)
    assert all(set(shared.train.targets[shared.shares[n]].tolist()) <= {0, 1} for n in range(5))
    assert federated(config(5), data, 7).test is UNTOUCHED
    assert len(federated(config(5, validation=0.2, test_limit=3), data, 7).test) == 3


def test_clients_that_draw_get_nothing_that_is_held_out() -> None:
    shared = federated(
        config(40, validation=0.5, examples_per_client=9), Dataset(examples([0, 1] * 20), UNTOUCHED), 0
    )
    assert not owned(shared) & set(numbers(shared.test))
    assert len(owned(shared)) == 20


def test_natural_data_keep_all_their_clients() -> None:
    owners = np.repeat(np.arange(5), 10)
    data = Dataset(examples([0] * 50), UNTOUCHED, owners)
    shared = federated(config(5, partition="natural", validation=0.1), data, 0)
    assert [len(shared.shares[n]) for n in range(5)] == [9] * 5
    assert sorted(numbers(shared.test)) == [9, 19, 29, 39, 49]


def test_own_data_that_is_shared_out_gives_a_part_of_every_client() -> None:
    train = examples([0, 1] * 20)
    shares = share_out("iid", train.targets.numpy(), 4, seeds.stream(0))
    _, shared = at_clients(config(4, validation=0.2), Own(data=FederatedData(train, UNTOUCHED, shares)))
    assert [len(shared.shares[n]) for n in range(4)] == [8] * 4
    assert owned(shared) == set(range(40)) - set(numbers(shared.test))


def test_a_run_is_tested_on_what_is_held_out() -> None:
    train, _ = heroes.data.load_digits()
    settings = config(10, validation=0.1).changed({"federation.rounds": 1, "engine.name": "in_process"})
    plain, tested = (heroes.run(settings, data=(train, hidden)) for hidden in (train, UNTOUCHED))
    assert plain.records == tested.records


def test_whoever_has_the_keys_but_not_the_seed_holds_the_same_out() -> None:
    settings = config(4, validation=0.1).changed({"seed": 11})
    elsewhere, keys = received(sent(settings), None)
    here, there = at_clients(settings)[1], at_clients(elsewhere, seed=keys)[1]
    assert torch.equal(here.test.inputs, there.test.inputs)
    assert isinstance(here.shares, Shares)
    assert np.array_equal(here.shares.order, there.shares.order)


def test_what_cannot_be_held_out_is_said() -> None:
    with pytest.raises(DataError, match=r"is 0\.001: of 50 training examples that leaves none"):
        federated(config(5, validation=0.001), Dataset(examples([0, 1] * 25), UNTOUCHED), 0)
    there = FederatedData(examples([0, 1]), UNTOUCHED, WholeShares(3, 2))
    with pytest.raises(DataError, match="stay on the clients' machines"):
        at_clients(config(3, validation=0.5), Own(data=there))
