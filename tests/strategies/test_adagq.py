"""AdaGQ: bits by what pays, by the size of the global change and by the links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from heroes import seeds
from heroes.client.training import LocalSettings, Trainer
from heroes.errors import ConfigError
from heroes.messages import Task, Update
from heroes.settings.config import Config
from heroes.slices.cuts import cut_out
from heroes.slices.uploads import pack_update, unpack_update
from heroes.strategies.adagq import AdaMemory, step


def answered(plan, strategy, state, losses, change=0.1):
    for a in plan.assignments:
        tensors = {name: value + change for name, value in state.tensors.items()}
        told = dict(zip(("loss_before", "loss_sent", "loss_coarser"), losses, strict=True))
        yield a, Update(a.client, a.round, tensors, 10, 0.5, told)


def test_bits_with_which_all_end_together(world):
    strategy = world.strategy("adagq")
    # T = 8: 8 bits of 1 s, 4 of 2 s
    found = strategy.ending_together(np.array([1.0, 2.0]), np.zeros(2), 6.0)
    assert found == pytest.approx([8.0, 4.0])
    late = strategy.ending_together(np.array([1.0, 1.0]), np.array([0.0, 10.0]), 6.0)
    assert late == pytest.approx([10.0, 2.0])  # no less than 2, so the other takes more
    assert strategy.ending_together(np.array([1.0, 1.0]), np.zeros(2), 16.0) == pytest.approx([16.0, 16.0])


def test_a_plan_has_bits_for_each_and_knows_their_bytes(world):
    strategy = world.strategy("adagq", probe_every=5)
    cohort = replace(world.cohort([4e9] * 3), upload=np.array([1e4, 2e4, 4e4]))
    plan = strategy.assign(strategy.begin(0), cohort)
    bits = [a.up_bits for a in plan.assignments]
    assert bits == plan.facts["bits"] == sorted(bits)
    assert len(set(bits)) > 1
    assert set(bits) <= {2, 4, 8, 16}
    for a, upload in zip(plan.assignments, cohort.upload.tolist(), strict=True):
        assert a.bytes_up == -(-7000 * a.up_bits // 32)
        assert a.transfer_seconds == pytest.approx(a.bytes_up / upload + 7100 / 1e6)
    assert plan.assignments[0].probe_seconds == pytest.approx(
        3e6 / 4e9
    )  # one gradient in a round that measures
    later = strategy.assign(replace(strategy.begin(0), round=1), cohort)
    assert [(a.probe_seconds, a.probes) for a in later.assignments] == [(0.0, False)] * 3


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        ((2.0, 1.0, 1.0), 7.0),  # as good in half the bits, and quicker
        ((2.0, 1.0, 2.0), 9.0),  # nothing gained in half the bits
        ((2.0, 2.0, 2.0), 8.0),  # no difference: keep
    ],
)
def test_fewer_bits_where_they_pay(world, losses, wanted):
    strategy = world.strategy("adagq")
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 2e8]))
    after, facts = strategy.aggregate(state, plan, answered(plan, strategy, state, losses))
    assert after.memory.bits == wanted
    assert after.memory.norm == facts["norm"] > 0


def test_bits_follow_the_size_of_the_global_change(world):
    strategy = world.strategy("adagq")
    state = replace(strategy.begin(0), memory=AdaMemory(8.0, None))
    plan = strategy.assign(state, world.cohort([4e8]))
    quiet = (2.0, 2.0, 2.0)
    first, _ = strategy.aggregate(state, plan, answered(plan, strategy, state, quiet, change=0.4))
    again = replace(state, memory=first.memory)
    after, _ = strategy.aggregate(again, plan, answered(plan, strategy, state, quiet, change=0.1))
    assert (first.memory.bits, after.memory.bits) == (
        8.0,
        pytest.approx(6.0, abs=1e-4),
    )  # a quarter: two less
    still = world.strategy("adagq", by_norm=0.0)
    assert still.aggregate(again, plan, answered(plan, still, state, quiet))[0].memory.bits == 8.0


def test_bits_stay_within_their_bounds_and_nobody_needs_to_tell(world):
    strategy = world.strategy("adagq", least_bits=4, first_bits=4)
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 2e8]))
    after, _ = strategy.aggregate(state, plan, answered(plan, strategy, state, (2.0, 1.0, 1.0)))
    assert after.memory.bits == 4
    silent = ((a, replace(update, measured={})) for a, update in answered(plan, strategy, state, (1.0, 1, 1)))
    assert strategy.aggregate(state, plan, silent)[0].memory.bits == 4
    assert step([]) == 0.0
    assert AdaMemory(8.0).fits(state.memory)
    assert not AdaMemory(99.0).fits(state.memory)


def test_a_client_measures_its_change_as_it_travels_and_in_half_the_bits(world):
    strategy, data = world.strategy("adagq"), world.data()
    local = LocalSettings(batch_size=100, train_in="dense", probes=0, tries_coarser=True)
    trainer, share = Trainer(strategy.family, local), data.shares[2]
    received = cut_out(strategy.begin(0).tensors, strategy.cut(strategy.selection(3)))
    work = Task(world.assignment(selection=strategy.selection(3), up_bits=4, tau=5), received, 5)
    update = trainer.trained(work, data.train, share)
    inputs, targets = data.train.batch(share, torch.device("cpu"))
    model, found = strategy.family.dense(3), []
    for bits in (None, 4, 2):
        packed = (
            None if bits is None else pack_update(update.tensors, received, bits, seeds.number(5, "upload"))
        )
        model.load(received if packed is None else unpack_update(packed, received))
        found.append(torch.nn.functional.cross_entropy(model(inputs), targets).item())
    told = [update.measured[f"loss_{when}"] for when in ("before", "sent", "coarser")]
    assert told == pytest.approx(found, rel=1e-5)
    lowest = replace(work, assignment=replace(work.assignment, up_bits=2))
    assert trainer.trained(lowest, data.train, share).measured == {}  # there is nothing coarser


def test_settings_out_of_order_and_privacy_are_refused():
    with pytest.raises(ConfigError, match="least_bits, first_bits, most_bits are 8, 4, 16"):
        Config().changed({"strategy.name": "adagq", "strategy.least_bits": 8, "strategy.first_bits": 4})
    with pytest.raises(ConfigError, match="cannot protect the losses that AdaGQ chooses bits by"):
        Config().changed({"strategy.name": "adagq", "privacy.noise": 1.0})
