"""FedAvg: everyone trains everything for the same number of steps, and the new model is the mean."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from heroes.client.training import LocalSettings, Trainer
from heroes.messages import Selection
from heroes.planning.loads import LearningRate
from heroes.rounds import as_sent, make_task, run_round
from heroes.slices.cuts import cut_out


def test_everyone_gets_the_whole_model_and_the_same_tau_however_slow(world):
    strategy = world.strategy("fedavg", tau=7)
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 1e6, 2e8]))
    assert {a.selection for a in plan.assignments} == {Selection(3, (0, 1, 2), tuple(range(9)))}
    assert [a.tau for a in plan.assignments] == [7, 7, 7]
    assert [a.client for a in plan.assignments] == [10, 11, 12]
    sent = cut_out(state.tensors, strategy.cut(plan.assignments[1].selection))
    assert sent.keys() == state.tensors.keys() == strategy.family.weight_shapes(3).keys()
    assert all(torch.equal(sent[name], value) for name, value in state.tensors.items())
    assert (plan.facts.get("tau_star"), plan.facts.get("rule"), plan.facts.get("deadline")) == (
        7.0,
        "fixed",
        None,
    )


def test_costs_are_those_of_the_full_width_and_nobody_probes(world):
    strategy = world.strategy("fedavg")
    fast, slow = strategy.assign(strategy.begin(0), world.cohort([4e8, 1e8], upload=100e3)).assignments
    assert (fast.step_seconds, slow.step_seconds) == pytest.approx((0.015, 0.06))
    assert (fast.probe_seconds, slow.probe_seconds) == (0.0, 0.0)
    assert fast.transfer_seconds == slow.transfer_seconds == pytest.approx(0.07 + 0.0071)
    assert (slow.bytes_up, slow.bytes_down) == (7000, 7100)


def test_tau_stays_while_the_learning_rate_decays(world):
    strategy = world.strategy("fedavg", learning_rate=LearningRate(0.1, 0.5))
    plan = strategy.assign(replace(strategy.begin(0), round=3), world.cohort([4e8]))
    (only,) = plan.assignments
    assert (only.tau, only.round, only.learning_rate) == (6, 4, pytest.approx(0.0125))


def test_the_new_model_is_the_plain_mean_whatever_the_samples(world):
    strategy = world.strategy("fedavg")
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 1e8, 2e8]))
    answers = [
        (a, replace(update, samples=samples))
        for (a, update), samples in zip(
            world.answers(plan, strategy, state, [1.0, 2.0, 6.0]), (1, 100, 5), strict=True
        )
    ]
    after, facts = strategy.aggregate(state, plan, iter(answers))
    assert {float(v) for value in after.tensors.values() for v in value.unique()} == {3.0}
    assert (after.round, facts) == (1, {})


def test_a_round_is_the_mean_of_what_its_clients_trained(world):
    federation = world.federation(world.strategy("fedavg"))
    begun = federation.strategy.begin(0)
    state, entry = run_round(federation, begun)
    data, trainer = (
        world.data(),
        Trainer(federation.family, LocalSettings(batch_size=5, probes=0, train_in="dense")),
    )
    clients = federation.fleet.status(np.array([c.client for c in entry.clients]), 1)
    updates = [
        trainer.train(
            make_task(federation, begun, a, partial(as_sent, federation, begun)),
            data.train,
            data.shares[a.client],
        ).tensors
        for a in federation.strategy.assign(begun, clients).assignments
    ]
    assert len(updates) == 4
    for name, value in state.tensors.items():
        torch.testing.assert_close(value, sum(u[name] for u in updates) / 4)
        assert not torch.equal(value, begun.tensors[name])


def test_three_golden_rounds(world):
    state, entries = world.three_rounds(world.strategy("fedavg"))
    assert [[(c.client, c.width, c.tau) for c in entry.clients] for entry in entries] == [
        [(1, 3, 6), (2, 3, 6), (7, 3, 6), (8, 3, 6)],
        [(3, 3, 6), (4, 3, 6), (10, 3, 6), (11, 3, 6)],
        [(2, 3, 6), (3, 3, 6), (6, 3, 6), (10, 3, 6)],
    ]
    assert [entry.traffic for entry in entries] == [56400, 112800, 169200]  # 4 * (7000 + 7100) a round
    assert [entry.loss for entry in entries] == pytest.approx([0.983673, 0.665137, 0.358152], rel=1e-3)
    assert [entry.seconds for entry in entries] == pytest.approx([0.396336, 0.760282, 1.155068], rel=1e-3)
    assert [entry.waiting for entry in entries] == pytest.approx([0.154166, 0.169705, 0.181666], rel=1e-3)
    norms = [float(state.tensors[name].norm()) for name in ("0.weight", "2.weight", "4.weight", "4.bias")]
    assert norms == pytest.approx([2.091222, 2.126953, 2.012729, 0.313394], rel=1e-3)
