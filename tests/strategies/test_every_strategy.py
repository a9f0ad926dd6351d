"""What all strategies share: the same clients, widths that are served, lost updates, states that stay."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from heroes.federation import Stop
from heroes.fleet.devices import FLEETS, Fleet
from heroes.rounds import run
from heroes.slices.cuts import cut_out
from heroes.strategies.registry import BUILT_IN


@pytest.mark.parametrize("name", [name for name, kind in BUILT_IN.items() if kind().sampler() is None])
def test_all_strategies_meet_the_same_clients_on_the_same_day(world, name):
    entries = [entry for _, entry in run(world.federation(world.strategy(name)), Stop(3))]
    fleet = Fleet(FLEETS["boards"], 12, 1)
    for entry, wanted in zip(entries, [(1, 2, 7, 8), (3, 4, 10, 11), (2, 3, 6, 10)], strict=True):
        assert tuple(c.client for c in entry.clients) == wanted
        status = fleet.status(np.array(wanted), entry.round)
        assert tuple(c.device for c in entry.clients) == status.devices
        links = zip(entry.clients, status.upload, status.download, strict=True)
        moved = [c.bytes_up / up + c.bytes_down / down for c, up, down in links]
        assert [c.transfer_seconds for c in entry.clients] == pytest.approx(moved)


@pytest.mark.parametrize("name", BUILT_IN)
def test_accuracy_is_told_for_the_widths_a_strategy_can_serve(world, name):
    federation = world.federation(world.strategy(name))
    widths = federation.strategy.widths
    assert widths in ((3,), (1, 2, 3))
    *_, (state, last) = run(federation, Stop(2))
    assert tuple(last.score_by_width) == widths
    assert last.accuracy == last.score_by_width[3]
    for width in widths:
        model = federation.family.dense(width)
        sent = cut_out(state.tensors, federation.strategy.cut(federation.strategy.selection(width)))
        model.load(federation.family.plain_weights(sent))
        test = world.data().test
        right = (model.module(test.inputs).argmax(dim=1) == test.targets).double().mean()
        assert last.score_by_width[width] == pytest.approx(float(right))


@pytest.mark.parametrize("name", BUILT_IN)
def test_lost_updates_do_not_count(world, name):
    strategy = world.strategy(name)
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 4e8, 4e8]))
    kept = [pair for pair in world.answers(plan, strategy, state, [1.0, 50.0, 3.0]) if pair[0].client != 11]
    after, _ = strategy.aggregate(state, plan, iter(kept))
    held = {piece.source for piece in strategy.cut(plan.assignments[0].selection).values()}
    assert all((after.tensors[source] == 2.0).all() for source in held)
    nobody, _ = strategy.aggregate(state, plan, iter([]))
    assert all(torch.equal(nobody.tensors[source], value) for source, value in state.tensors.items())
    assert (after.round, nobody.round) == (1, 1)


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_strategy_changes_the_state_it_was_given(world, name):
    strategy = world.strategy(name)
    state = strategy.begin(0)
    kept = copy.deepcopy(state)
    plan = strategy.assign(state, world.cohort([4e8, 1e8, 2e8]))
    assert strategy.assign(state, world.cohort([4e8, 1e8, 2e8])) == plan
    strategy.aggregate(state, plan, world.answers(plan, strategy, state, [1.0, 2.0, 3.0]))
    assert (state.round, state.memory) == (kept.round, kept.memory)
    assert all(torch.equal(state.tensors[source], value) for source, value in kept.tensors.items())
    for source, value in strategy.begin(0).tensors.items():  # and it always begins the same
        assert torch.equal(value, kept.tensors[source])
