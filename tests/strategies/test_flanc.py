"""Flanc: one basis for all, everything else apart for every width."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from heroes.client.terms import Orthogonality
from heroes.client.training import LocalSettings, Trainer
from heroes.messages import Task
from heroes.models.family import Family
from heroes.models.starts import he
from heroes.rounds import as_sent, make_task, run_round
from heroes.slices.cuts import cut_out

BASIS, COEFFICIENT = "2.weight.basis", "2.weight.coefficient"
APART = ["0.weight", "0.bias", COEFFICIENT, "2.bias", "4.weight", "4.bias"]


def test_the_basis_exists_once_and_all_else_once_per_width(world):
    tensors = world.strategy("flanc").begin(0).tensors
    assert tensors.keys() == {BASIS} | {f"{name}@{width}" for name in APART for width in (1, 2, 3)}
    for width in (1, 2, 3):
        shapes = world.family().tensor_shapes(width)
        assert {name: tuple(tensors[f"{name}@{width}"].shape) for name in APART} == {
            name: shapes[name] for name in APART
        }
    assert tuple(tensors[BASIS].shape) == (3, 2)


def test_a_client_gets_the_basis_and_what_belongs_to_its_width(world):
    strategy = world.strategy("flanc")
    state = strategy.begin(0)
    for width in (1, 2, 3):
        got = cut_out(state.tensors, strategy.cut(strategy.selection(width)))
        assert torch.equal(got.pop(BASIS), state.tensors[BASIS])
        assert got.keys() == set(APART)
        assert all(torch.equal(value, state.tensors[f"{name}@{width}"]) for name, value in got.items())


def test_the_basis_is_averaged_over_all_and_the_rest_within_the_width(world):
    strategy = world.strategy("flanc")
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 1e8, 4e8, 1e8, 1e8]))  # widths 3, 1, 3, 1, 1
    assert [a.selection.width for a in plan.assignments] == [3, 1, 3, 1, 1]
    after, facts = strategy.aggregate(
        state, plan, world.answers(plan, strategy, state, [1.0, 6.0, 2.0, 7.0, 11.0])
    )
    assert after.tensors[BASIS].unique().tolist() == pytest.approx([27.0 / 5])
    for name in APART:
        assert after.tensors[f"{name}@1"].unique().tolist() == [8.0]
        assert after.tensors[f"{name}@3"].unique().tolist() == [1.5]
    assert (after.round, facts) == (1, {})


def test_a_width_with_no_participant_keeps_its_value_bit_for_bit(world):
    federation = world.federation(world.strategy("flanc", step_limit=1e9))  # everyone affords the full width
    begun = federation.strategy.begin(5)
    state, entry = run_round(federation, begun)
    assert {c.width for c in entry.clients} == {3}
    for name in APART:
        for width in (1, 2):
            assert torch.equal(state.tensors[f"{name}@{width}"], begun.tensors[f"{name}@{width}"])
        assert not torch.equal(state.tensors[f"{name}@3"], begun.tensors[f"{name}@3"])
    assert not torch.equal(state.tensors[BASIS], begun.tensors[BASIS])


def test_a_round_by_hand_over_mixed_widths(world):
    federation = world.federation(world.strategy("flanc"))
    begun = federation.strategy.begin(0)
    state, entry = run_round(federation, begun)
    data, trainer = (
        world.data(),
        Trainer(federation.family, LocalSettings(batch_size=5, probes=0, terms=(Orthogonality(0.1),))),
    )
    clients = federation.fleet.status(np.array([c.client for c in entry.clients]), 1)
    plan = federation.strategy.assign(begun, clients).assignments
    updates = [
        trainer.train(
            make_task(federation, begun, a, partial(as_sent, federation, begun)),
            data.train,
            data.shares[a.client],
        ).tensors
        for a in plan
    ]
    assert [a.selection.width for a in plan] == [3, 2, 1, 2]
    torch.testing.assert_close(state.tensors[BASIS], sum(u[BASIS] for u in updates) / 4)
    for name in APART:
        torch.testing.assert_close(state.tensors[f"{name}@2"], (updates[1][name] + updates[3][name]) / 2)
        assert torch.equal(state.tensors[f"{name}@3"], updates[0][name])
        assert torch.equal(state.tensors[f"{name}@1"], updates[2][name])


def test_widths_are_what_devices_afford_and_tau_is_fixed(world):
    strategy = world.strategy("flanc", tau=9)
    plan = strategy.assign(strategy.begin(0), world.cohort([4e8, 1e8, 2e8, 1e6]))
    assert [a.selection.width for a in plan.assignments] == [3, 1, 2, 1]
    assert {a.tau for a in plan.assignments} == {9}
    assert {a.probe_seconds for a in plan.assignments} == {0.0}
    assert (plan.facts.get("tau_star"), plan.facts.get("rule")) == (9.0, "fixed")


def test_the_regulariser_is_on_unless_switched_off(world):
    federation = world.assembled("flanc")
    trainer = federation.engine.trainer
    assert (trainer.settings.terms, trainer.settings.train_in, trainer.settings.probes) == (
        (Orthogonality(0.1),),
        "factors",
        0,
    )
    strategy, data = federation.strategy, world.data()
    skewed = torch.tensor([[1.0, 0.5], [0.0, 2.0], [0.3, 0.0]])
    sent = cut_out(strategy.begin(0).tensors, strategy.cut(strategy.selection(2))) | {BASIS: skewed}
    task = Task(world.assignment(selection=strategy.selection(2), tau=1, learning_rate=0.2), sent, 3)
    free = world.assembled("flanc", {"strategy.regulariser": 0.0, "training.clip": "none"}).engine.trainer
    held = world.assembled("flanc", {"training.clip": "none"}).engine.trainer
    without, with_it = (t.train(task, data.train, data.shares[0]).tensors for t in (free, held))
    # of mean((V^T V - I)^2) over 2 x 2 squares
    gradient = 4 * skewed @ (skewed.T @ skewed - torch.eye(2)) / 4
    torch.testing.assert_close(with_it[BASIS], without[BASIS] - 0.2 * 0.1 * gradient, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(with_it[name], without[name]) for name in APART)
    assert world.assembled("heroes").engine.trainer.settings.terms == ()


def wide(width):
    hidden = nn.Linear(40 * width, 30 * width)
    return he(nn.Sequential(nn.Linear(4, 40 * width), nn.ReLU(), hidden, nn.ReLU(), nn.Linear(30 * width, 3)))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_every_width_starts_as_large_as_its_own_module(world, width):
    strategy = world.strategy("flanc", family=Family(wide, 3))
    tensors = strategy.begin(3).tensors
    start = strategy.family.plain_weights(cut_out(tensors, strategy.cut(strategy.selection(width))))
    assert float(start["2.weight"].var()) == pytest.approx(2 / (40 * width), rel=0.15)
    # an orthonormal (40, 30) basis has rows of mean squared norm 30 / 40
    assert float(tensors[f"{COEFFICIENT}@{width}"].std()) == pytest.approx(
        math.sqrt(2 / (40 * width) * 40 / 30), rel=0.05
    )
    gram = tensors[BASIS].T @ tensors[BASIS]
    torch.testing.assert_close(gram, torch.eye(30), atol=1e-5, rtol=0)


def test_widths_start_apart_and_from_the_modules_own_values(world):
    strategy = world.strategy("flanc")
    tensors, again, other = (strategy.begin(seed).tensors for seed in (4, 4, 5))
    assert all(torch.equal(value, again[name]) for name, value in tensors.items())
    assert not torch.equal(tensors[BASIS], other[BASIS])
    assert not torch.equal(tensors[f"{COEFFICIENT}@1"][0], tensors[f"{COEFFICIENT}@2"][0])
    for width in (1, 2, 3):
        module = dict(strategy.family.module(width, 4).named_parameters())
        assert torch.equal(tensors[f"0.weight@{width}"], module["0.weight"])
        assert torch.equal(tensors[f"4.bias@{width}"], module["4.bias"])
    assert torch.equal(tensors[BASIS], strategy.family.initial(4)[BASIS])  # what Heroes would start from


def test_three_golden_rounds(world):
    state, entries = world.three_rounds(world.strategy("flanc"))
    assert [[(c.client, c.width, c.tau) for c in entry.clients] for entry in entries] == [
        [(1, 3, 6), (2, 2, 6), (7, 1, 6), (8, 2, 6)],
        [(3, 3, 6), (4, 3, 6), (10, 1, 6), (11, 3, 6)],
        [(2, 2, 6), (3, 3, 6), (6, 3, 6), (10, 1, 6)],
    ]
    assert [entry.traffic for entry in entries] == [34400, 80800, 121200]
    assert [entry.loss for entry in entries] == pytest.approx([1.031432, 0.798429, 0.661392], rel=1e-3)
    assert [entry.seconds for entry in entries] == pytest.approx([0.123567, 0.270833, 0.404584], rel=1e-3)
    names = [BASIS, f"{COEFFICIENT}@1", f"{COEFFICIENT}@2", f"{COEFFICIENT}@3", "4.weight@2"]
    norms = [float(state.tensors[name].norm()) for name in names]
    assert norms == pytest.approx([1.617027, 0.937298, 1.394418, 2.044791, 1.438302], rel=1e-3)
