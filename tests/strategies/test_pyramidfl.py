"""PyramidFL: Oort's clients, more steps instead of waiting, uploads by rank."""

from __future__ import annotations

import math

import pytest

from heroes.federation import Stop
from heroes.planning.oort import Oort
from heroes.rounds import run
from heroes.strategies.pyramidfl import PyramidMemory


def test_uploads_by_rank_with_strangers_in_the_middle(world):
    strategy = world.strategy("pyramidfl", drop_first=0.1, drop_range=0.4)
    shares = strategy.shares({1: 5.0, 2: 50.0, 4: 0.5}, [1, 2, 3, 4])  # 3 counts as 5, after 1
    assert shares == pytest.approx([0.8, 0.9, 0.7, 0.6])
    assert strategy.shares({}, [7, 8]) == pytest.approx([0.9, 0.7])
    assert world.strategy("pyramidfl", drop_first=1.0).shares({}, [7]) == [0.01]


def test_who_would_wait_does_more_steps(world):
    strategy = world.strategy("pyramidfl", tau=6, drop_first=0.0, drop_range=0.0)
    plan = strategy.assign(strategy.begin(0), world.cohort([4e8, 1e8, 2e8]))  # 0.015, 0.06, 0.03 s a step
    # the slowest needs 0.36 s for 6: 18 steps more of 0.015 in the 0.27 s left, 6 more of 0.03 in 0.18
    assert [a.tau for a in plan.assignments] == [24, 6, 12]
    half = world.strategy("pyramidfl", tau=6, drop_first=0.0, drop_range=0.0, more_steps=0.5, tau_max=14)
    plan = half.assign(half.begin(0), world.cohort([4e8, 1e8, 2e8]))
    assert [a.tau for a in plan.assignments] == [14, 6, 9]


def test_it_waits_less_than_oort_alone(world):
    share = {}
    for name in ("oort", "pyramidfl"):
        entries = [entry for _, entry in run(world.assembled(name, {"strategy.tau": 6}), Stop(4))]
        share[name] = sum(e.waiting for e in entries) / sum(e.duration for e in entries)
    assert share["pyramidfl"] < 0.5 * share["oort"]


def test_weights_are_norms_times_samples_and_stay_until_the_next_time(world):
    strategy = world.strategy("pyramidfl")
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 1e8]))
    answers = []
    for a, update in world.answers(plan, strategy, state):
        moved = {name: t + (0.5 if a.client == 10 else 0.0) for name, t in update.tensors.items()}
        answers.append((a, type(update)(a.client, a.round, moved, 10, 0.5)))
    after, _ = strategy.aggregate(state, plan, iter(answers))
    count = sum(t.numel() for t in state.tensors.values())
    assert after.memory.weights == {10: pytest.approx(10 * 0.5 * math.sqrt(count), rel=1e-4), 11: 0.0}
    kept, _ = strategy.aggregate(after, plan, iter([]))
    assert kept.memory == after.memory
    assert after.memory.fits(state.memory)
    assert not PyramidMemory({1: math.inf}).fits(state.memory)


def test_it_chooses_as_oort_does(world):
    assert world.strategy("pyramidfl").sampler() == Oort()
