"""Tensors that travel with fewer bits, through whole rounds: bytes, clock, seeds, error feedback and
accuracy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from representatives import representatives, steps

from heroes import seeds
from heroes.assemble import assembled, stop_rule
from heroes.client.optimisers import Sgd
from heroes.client.training import LocalSettings, Trainer
from heroes.data import Examples, FederatedData
from heroes.federation import Stop
from heroes.messages import Lost, Update
from heroes.rounds import as_sent, make_task, run, run_round
from heroes.settings.recipes import digits
from heroes.slices.cuts import cut_out, cut_shapes
from heroes.slices.exchange import (
    pack_tensors,
    tensors_bytes,
    unpack_tensors,
)
from heroes.slices.feedback import Leftover
from heroes.slices.uploads import pack_update, pack_with_feedback, unpack_update, upload_bytes
from heroes.strategies.registry import BUILT_IN
from heroes.transport.engines import in_process
from heroes.transport.engines.in_process import FunctionEngine, InProcessEngine

FEW = {"exchange.up_bits": 4, "exchange.down_bits": 8}


def with_feedback(name, feedback):
    """The setting, or what the strategy cannot do without."""
    key = "exchange.error_feedback"
    return {key: BUILT_IN[name].requires.get(key, feedback)}


def planned(federation, state):
    """The assignments of the state's next round, and the status of its clients."""
    _, entry = run_round(federation, state)
    cohort = federation.fleet.status(np.array([c.client for c in entry.clients]), entry.round)
    return federation.strategy.assign(state, cohort).assignments, cohort, entry


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.parametrize("name", representatives())
def test_bytes_in_the_records_are_those_of_the_packed_tensors_and_the_server_sees_what_they_hold(world, name):
    federation = world.assembled(name, FEW)
    begun, data = federation.strategy.begin(0), world.data()
    plan, _, entry = planned(federation, begun)
    quantised = federation.engine.trainer
    exact = Trainer(federation.family, replace(quantised.settings, up_bits=32))
    whole_upload = {"up_bits": None, "up_share": None}
    for a, client in zip(plan, entry.clients, strict=True):
        whole = cut_out(begun.tensors, federation.strategy.cut(a.selection))
        sent = pack_tensors(whole, 8)
        task = make_task(federation, begun, a, partial(as_sent, federation, begun))
        assert same(task.tensors, unpack_tensors(sent))
        plain = replace(task, assignment=replace(a, **whole_upload), residuals=None)
        answer = exact.train(plain, data.train, data.shares[a.client])
        bits, share = quantised.fineness(a)
        assert (bits, share) == (a.up_bits or 4, a.up_share or 1.0)
        upload = (
            pack_update(answer.tensors, task.tensors, bits, seeds.number(task.seed, "upload"), share)
            if task.residuals is None
            else pack_with_feedback(answer.tensors, task.tensors, bits, task.residuals, share)[0]
        )
        gradient = sum(extra.nbytes for extra in answer.extras.values())
        assert answer.extras.keys() == {extra.name for extra in federation.sends}
        assert client.bytes_up == sum(piece.nbytes for piece in upload.values()) + gradient
        assert client.bytes_down == sum(piece.nbytes for piece in sent.values())
        shapes = cut_shapes(begun.tensors, federation.strategy.cut(a.selection)).values()
        assert (client.bytes_up - gradient, client.bytes_down) == (
            upload_bytes(shapes, bits, share),
            tensors_bytes(shapes, 8),
        )
        seen = quantised.train(task, data.train, data.shares[a.client]).tensors
        assert same(seen, unpack_update(upload, task.tensors))
        assert not same(seen, answer.tensors)
    assert entry.bytes_up == sum(c.bytes_up for c in entry.clients)


@pytest.mark.parametrize("name", representatives())
def test_the_clock_counts_the_packed_bytes(world, name):
    by_compute = {"strategy.useful": 0.0} if "useful" in BUILT_IN[name].model_fields else {}
    few, full = world.assembled(name, FEW | by_compute), world.assembled(name, by_compute)
    plan, cohort, entry = planned(few, few.strategy.begin(0))
    links = zip(entry.clients, cohort.upload, cohort.download, strict=True)
    moved = [c.bytes_up / up + c.bytes_down / down for c, up, down in links]
    assert [c.transfer_seconds for c in entry.clients] == pytest.approx(moved)
    assert entry.duration == pytest.approx(max(a.seconds for a in plan))
    _, exact = run_round(full, full.strategy.begin(0))
    steps = [[c.compute_seconds / c.tau / c.batch for c in each.clients] for each in (exact, entry)]
    assert steps[0] == pytest.approx(steps[1])
    assert entry.bytes_down < 0.5 * exact.bytes_down
    extras = len(plan) * sum(extra.nbytes(()) for extra in few.sends)  # they travel as they are
    if all((a.up_bits, a.up_share) == (None, None) for a in plan):  # else the strategy itself chooses them
        assert entry.bytes_up - extras < 0.4 * (exact.bytes_up - extras)
    assert entry.duration < exact.duration


@pytest.mark.parametrize("name", representatives())
def test_thirty_two_bits_change_nothing(world, name):
    own_bits = BUILT_IN[name]().duties(0).tries_coarser  # rounds whatever the configuration says
    runs = [
        list(run(world.assembled(name, changes), Stop(2)))
        for changes in (
            {},
            {"exchange.up_bits": 32, "exchange.down_bits": 32, "exchange.error_feedback": not own_bits},
        )
    ]
    assert [entry for _, entry in runs[0]] == [entry for _, entry in runs[1]]
    assert same(runs[0][-1][0].tensors, runs[1][-1][0].tensors)


def test_an_update_packed_in_thirty_two_bits_comes_back_bit_for_bit(world):
    federation, data = world.federation(world.strategy("fedavg")), world.data()
    begun = federation.strategy.begin(0)
    plan, _, _ = planned(federation, begun)
    task = make_task(federation, begun, plan[0], partial(as_sent, federation, begun))
    assert same(task.tensors, unpack_tensors(pack_tensors(begun.tensors, 32)))
    answer = federation.engine.trainer.train(task, data.train, data.shares[plan[0].client]).tensors
    assert same(answer, unpack_update(pack_update(answer, task.tensors, 32, 1), task.tensors))


@pytest.mark.parametrize("name", representatives())
@pytest.mark.parametrize("feedback", [False, True])
def test_every_strategy_runs_and_learns_with_few_bits_and_repeats_from_its_seed(world, name, feedback):
    own = BUILT_IN[name].requires.get("optimiser.name")
    changes = FEW | steps(name, 6) | with_feedback(name, feedback)
    changes |= {"optimiser.rate": 0.1} if own in ("adam", "yogi") else {}
    first, second = (list(run(world.assembled(name, changes), Stop(6), evaluate_every=6)) for _ in range(2))
    assert [entry for _, entry in first] == [entry for _, entry in second]
    assert same(first[-1][0].tensors, second[-1][0].tensors)
    assert all(entry.missing == () for _, entry in first)
    assert max(first[-1][1].score_by_width.values()) > 0.6  # Flanc's widest has no participant here


def test_rounding_up_or_down_is_drawn_from_the_clients_seed(world):
    federation, data = (
        world.federation(world.strategy("fedavg"), up_bits=4, batch_size=100, optimiser=Sgd(0.0)),
        world.data(),
    )
    begun = federation.strategy.begin(0)
    plan, _, _ = planned(federation, begun)
    # one step on the whole share: no other randomness but the order
    task = make_task(federation, begun, replace(plan[0], tau=1), partial(as_sent, federation, begun))
    share = data.shares[plan[0].client]
    one, again, other = (
        federation.engine.trainer.train(replace(task, seed=seed), data.train, share).tensors
        for seed in (5, 5, 6)
    )
    assert same(one, again)
    assert max(float((one[name] - other[name]).abs().max()) for name in one) > 1e-3


def poisoned(world, client):
    """The data with one client's points at infinity."""
    data = world.data()
    inputs = data.train.inputs.clone()
    inputs[torch.from_numpy(data.shares[client])] = math.inf
    return FederatedData(Examples(inputs, data.train.targets), data.test, data.shares)


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", representatives())
def test_a_client_that_diverged_is_recorded_and_not_raised(world, name, feedback):
    federation = world.assembled(name, FEW | with_feedback(name, feedback))
    engine = InProcessEngine(federation.engine.trainer, poisoned(world, 7))
    federation = replace(federation, engine=engine)
    state, entry = run_round(federation, federation.strategy.begin(0))
    assert [c.client for c in entry.clients] == [1, 2, 7, 8]
    assert [(lost.client, lost.cause) for lost in entry.missing] == [(7, "finite")]
    assert all(torch.isfinite(value).all() for value in state.tensors.values())
    if federation.feedback is not None:
        assert list(state.residuals) == [1, 2, 8]  # nothing of an upload that does not count


def test_when_all_diverge_the_model_stays(world):
    wild = {"training.learning_rate": 1e38, "training.clip": "none", "server.at_least": 0}
    federation = world.assembled("fedavg", FEW | wild)
    begun = federation.strategy.begin(0)
    state, entry = run_round(federation, begun)
    assert {lost.client for lost in entry.missing} == {c.client for c in entry.clients}
    assert same(state.tensors, begun.tensors)


def test_what_rounding_left_out_is_kept_for_those_who_answered_and_sent_next_time(world):
    federation, data = (
        world.federation(world.strategy("fedavg"), up_bits=2, error_feedback=True),
        world.data(),
    )
    exact = Trainer(federation.family, LocalSettings(batch_size=5, probes=0, train_in="dense"))
    state, kept = federation.strategy.begin(0), {}
    rounds = [((1, 2, 7, 8), set()), ((3, 4, 10, 11), set()), ((2, 3, 6, 10), {2, 3, 10})]
    for number, (clients, returning) in enumerate(rounds, start=1):
        before, cohort = state, federation.fleet.status(np.array(clients), number)
        uploads = []
        for a in federation.strategy.assign(before, cohort).assignments:
            task = make_task(federation, before, a, partial(as_sent, federation, before))
            left = kept.get(a.client, {name: torch.zeros_like(value) for name, value in task.tensors.items()})
            assert same(task.residuals, left)
            assert (a.client in returning) == any(value.any() for value in left.values())
            plain = replace(task, residuals=None)
            answer = exact.train(plain, data.train, data.shares[a.client]).tensors
            packed, kept[a.client] = pack_with_feedback(answer, task.tensors, 2, left)
            uploads.append(unpack_update(packed, task.tensors))
            for name, seen in uploads[-1].items():  # all that was wanted is either sent or kept
                wanted = answer[name] - task.tensors[name] + left[name]
                torch.testing.assert_close(
                    seen - task.tensors[name] + kept[a.client][name], wanted, rtol=1e-4, atol=1e-5
                )
        state, _ = run_round(federation, before)
        assert state.residuals.keys() == kept.keys()
        assert all(same(state.residuals[client], residuals) for client, residuals in kept.items())
        for name, value in state.tensors.items():
            torch.testing.assert_close(value, sum(upload[name] for upload in uploads) / 4)


def test_a_client_that_does_not_answer_keeps_its_residuals(world):
    def answer(task):
        if task.assignment.client == 2:
            return None
        left = {name: torch.full_like(value, 9.0) for name, value in task.tensors.items()}
        nonce = task.assignment.nonce
        return Update(
            task.assignment.client, task.assignment.round, task.tensors, 10, 0.5, residuals=left, nonce=nonce
        )

    federation = world.federation(world.strategy("fedavg"), FunctionEngine(answer), error_feedback=True)
    cut = federation.strategy.cut(federation.strategy.selection(3))
    begun = federation.strategy.begin(0)
    four = {name: torch.full_like(value, 4.0) for name, value in begun.tensors.items()}
    before = replace(begun, residuals=federation.feedback.keep({}, [Leftover(2, cut, four)]))
    state, entry = run_round(federation, before)
    assert entry.missing == (Lost(2, "no answer", "silent"),)
    left = {
        client: {float(v) for t in kept.values() for v in t.unique()}
        for client, kept in state.residuals.items()
    }
    assert left == {2: {4.0}, 1: {9.0}, 7: {9.0}, 8: {9.0}}


def digits_accuracy(name, seed, rounds, up, down, cohort=10):
    """Accuracy of the complete model at the end of a digits run."""
    bits = {"exchange.up_bits": up, "exchange.down_bits": down}
    plain = {
        "strategy.name": name,
        "training.device": "cpu",
        "engine.name": "in_process",
        "federation.cohort": cohort,
    }
    config = digits(rounds=rounds, seed=seed).changed(plain | bits)
    with assembled(config, in_process.opened) as federation:
        *_, (_, last) = run(federation, stop_rule(config), evaluate_every=rounds, every_width=False)
    return last.accuracy


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_heroes_loses_at_most_two_points_on_digits_to_fewer_bits():
    full, few = (digits_accuracy("heroes", 0, 15, *bits, cohort=5) for bits in ((32, 32), (4, 8)))
    assert full > 0.9
    assert few >= full - 0.02


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", representatives())
def test_over_seeds_no_strategy_loses_two_points_on_digits_to_fewer_bits(name, record_property):
    full = [digits_accuracy(name, seed, 40, 32, 32) for seed in range(3)]
    few = [digits_accuracy(name, seed, 40, 4, 8) for seed in range(3)]
    record_property("accuracy_32_32", full)
    record_property("accuracy_4_8", few)
    assert np.mean(few) >= np.mean(full) - 0.02
