"""One seed, many streams: each depends on its name only. And the learning rate over the rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import heroes
from heroes import seeds
from heroes.assemble import NOTHING, at_clients, at_node
from heroes.assemble.elsewhere import sent
from heroes.errors import ConfigError
from heroes.planning.loads import LearningRate
from heroes.rounds import run_round, sample

names = st.lists(
    st.one_of(st.integers(0, 1000), st.sampled_from(["client", "sampling", "fleet", "7"])), max_size=3
)


@given(st.integers(0, 2**32), st.integers(0, 2**32), names, names)
def test_different_names_or_seeds_give_different_numbers(seed, other, one, two):
    same = (seed, one) == (other, two) and [type(n) for n in one] == [type(n) for n in two]
    assert (seeds.number(seed, *one) == seeds.number(other, *two)) == same


def test_a_number_and_its_text_are_different_names():
    assert seeds.number(0, 7) != seeds.number(0, "7")


def test_streams_are_not_correlated():
    draws = np.stack([seeds.stream(5, "sampling", n).normal(size=4000) for n in range(6)])
    between = np.corrcoef(draws)[~np.eye(6, dtype=bool)]
    assert np.abs(between).max() < 0.08  # five deviations


@given(st.integers(0, 2**32), names)
def test_numbers_fit_into_63_bits(seed, name):
    assert 0 <= seeds.number(seed, *name) < 2**63


def test_a_stream_does_not_depend_on_what_was_drawn_before():
    alone = seeds.stream(3, "fleet", 900).random(5)
    for n in range(20):
        seeds.stream(3, "fleet", n).random(100)
    seeds.number(3, "fleet", 900)
    assert np.array_equal(seeds.stream(3, "fleet", 900).random(5), alone)


def test_numpy_numbers_are_numbers_and_slashes_do_not_join_names():
    assert seeds.number(np.int64(4), "client", np.int64(3)) == seeds.number(4, "client", 3)
    assert seeds.number(0, "a/b") != seeds.number(0, "a", "b")


def test_values_stay_what_they_were_so_that_old_runs_can_be_repeated():
    assert seeds.number(0, "model") == 3222771215749779160
    assert seeds.client(7, 900, 42) == 5761017779085171422
    assert seeds.client(7, 900, 42) == seeds.number(7, "client", 900, 42)
    assert seeds.stream(7, "sampling", 900).integers(0, 1000, 5).tolist() == [121, 497, 422, 441, 586]


def test_the_clients_of_a_round_are_distinct_sorted_and_their_own(world):
    federation = world.federation(clients=50, cohort=10)
    begun = federation.strategy.begin(0)
    rounds = [sample(federation, replace(begun, round=n)).tolist() for n in range(39)]
    assert all(len(set(r)) == 10 and r == sorted(r) and 0 <= r[0] <= r[-1] < 50 for r in rounds)
    assert len({tuple(r) for r in rounds}) == 39
    assert set().union(*rounds) == set(range(50))


def test_a_round_reached_by_running_equals_the_round_replayed_alone(world):
    running = world.federation()
    state = running.strategy.begin(seeds.number(running.seed, "model"))
    before = [state]
    records = []
    for _ in range(3):
        state, entry = run_round(running, state)
        before.append(state)
        records.append(entry)
    for number in (3, 1, 2):  # in any order, each by a federation of its own
        replayed, entry = run_round(world.federation(), before[number - 1])
        assert entry == records[number - 1]
        assert all(
            torch.equal(replayed.tensors[name], value) for name, value in before[number].tensors.items()
        )


def test_round_900_can_be_replayed_from_its_state_alone(world):
    begun = world.strategy("heroes").begin(0)
    at_900 = replace(begun, round=899)
    busy = world.federation(world.strategy("heroes", rounds=1000))
    run_round(busy, begun)
    _, after_others = run_round(busy, at_900)
    _, alone = run_round(world.federation(world.strategy("heroes", rounds=1000)), at_900)
    assert after_others == alone
    assert alone.round == 900
    assert [c.client for c in alone.clients] == sample(busy, at_900).tolist()


@pytest.mark.parametrize(("rounds_done", "value"), [(0, 0.8), (1, 0.4), (3, 0.1), (4, 0.07), (500, 0.07)])
def test_the_learning_rate_decays_to_its_floor(rounds_done, value):
    assert LearningRate(0.8, decay=0.5, floor=0.07).at(rounds_done) == pytest.approx(value)


def test_the_learning_rate_is_constant_unless_told_and_a_floor_above_the_start_does_not_raise_it():
    assert LearningRate(0.1).at(10_000) == 0.1
    assert LearningRate(0.1, decay=0.5, floor=5.0).at(0) == 0.1


def test_keys_give_the_streams_they_are_of_and_no_other():
    keys = seeds.Keys.of(5, [("partition",), ("fleet", "devices")])
    for names in (("partition",), ("fleet", "devices")):
        assert seeds.number(keys, *names) == seeds.number(5, *names)
        assert (seeds.stream(keys, *names).random(9) == seeds.stream(5, *names).random(9)).all()
    with pytest.raises(ConfigError, match="no key for the stream 'sampling 1'"):
        seeds.stream(keys, "sampling", 1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"data.partition": "by_device"},
        {"data.examples_per_client": 30},
        {"data.test_limit": 50},
        {"evaluation.sample": 50},
    ],
)
def test_a_client_finds_its_share_without_the_seed(changes):
    config = heroes.recipes.digits().changed({"seed": 12345678987, **changes})
    text = sent(config)
    assert "12345678987" not in text
    (_, here), (_, there) = at_clients(config), at_node(NOTHING, text, 0)
    for few in (False, True):
        assert torch.equal(here.tested(few).inputs, there.tested(few).inputs)
    assert len(here.tested(True)) == changes.get("evaluation.sample", len(here.test))
    for one, other in zip(here.shares, there.shares, strict=True):
        assert one.tolist() == other.tolist()
