"""Rounds on bad days: who counts, what is begun again, and the same bits on every engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from representatives import representatives, steps

import heroes
from heroes.errors import TrainingError
from heroes.federation import Policy, Stop
from heroes.fleet.availability import DayAndNight
from heroes.fleet.clock import VirtualClock
from heroes.fleet.faults import Faults
from heroes.messages import Update
from heroes.rounds import as_sent, make_task, run, run_round
from heroes.transport.engines.faulty import FaultyEngine, spoilt
from heroes.transport.engines.in_process import FunctionEngine

BAD_DAY = {
    "faults.dropout": 0.2,
    "faults.upload_loss": 0.1,
    "faults.crash": 0.1,
    "faults.stall": 0.1,
    "faults.garbage": 0.2,
    "faults.attackers": 0.25,
    "server.deadline_factor": 2.0,
    "server.at_least": 2,
    "server.oversample": 1.5,
    "server.attempts": 50,
}


def moved(task, by=1.0):
    """A client that adds the same to every value."""
    a = task.assignment
    return Update(a.client, a.round, {n: t + by for n, t in task.tensors.items()}, 10, 0.5, nonce=a.nonce)


def bad(world, engine=None, policy=None, clock=None, **faults):
    """The tiny federation with faults."""
    made = Faults(1, 12, **faults)
    federation = world.federation(world.strategy("fedavg"), engine or FunctionEngine(moved))
    return replace(
        federation,
        availability=DayAndNight(made),
        clock=clock or VirtualClock(made),
        policy=policy or Policy(0, 50),
    )


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_nobody_trains_whose_update_would_not_count(world):
    trained = []
    engine = FunctionEngine(lambda task: trained.append(task.assignment.client) or moved(task))
    _, entry = run_round(bad(world, engine, dropout=0.5), world.strategy("fedavg").begin(0))
    gone = {lost.client for lost in entry.missing}
    assert gone
    assert trained == [c.client for c in entry.clients if c.client not in gone]
    assert entry.lost == {"dropout": len(gone)}


def test_what_is_counted_is_what_was_sent(world):
    federation = bad(world, dropout=0.3, upload_loss=0.3)
    state = world.strategy("fedavg").begin(0)
    for _ in range(5):
        before = state
        state, entry = run_round(federation, state)
        came = [c for c in entry.clients if c.samples is not None]
        assert entry.bytes_up == sum(c.bytes_up for c in came) == state.bytes_up - before.bytes_up
        assert (
            entry.bytes_down
            == sum(c.bytes_down for c in entry.clients)
            == state.bytes_down - before.bytes_down
        )
        assert all((c.bytes_up > 0) == (c in came) for c in entry.clients)
        assert entry.waiting == pytest.approx(sum(c.waiting for c in came) / max(1, len(came)))
        assert all(
            torch.equal(value, before.tensors[name] + (1.0 if came else 0.0))
            for name, value in state.tensors.items()
        )


def test_counters_and_the_reducing_error_are_those_of_clients_that_answered(world):
    faults = Faults(1, 12, dropout=0.5)
    federation = replace(world.federation(), clock=VirtualClock(faults))
    state, entry = run_round(federation, federation.strategy.begin(0))
    came = [c for c in entry.clients if c.samples is not None]
    assert 0 < len(came) < 4
    counters = [sum(c.tau for c in came if block in c.pieces) for block in range(9)]
    assert list(state.memory.counters) == counters
    assert state.memory.reducing_error == max(
        error
        for c, error in zip(entry.clients, entry.facts["reducing_errors"], strict=True)
        if c.samples is not None
    )


def test_a_round_that_too_few_answer_is_begun_again_with_fresh_clients_and_says_so(world):
    federation = bad(world, policy=Policy(at_least=3, attempts=50), dropout=0.4)
    state, seconds, traffic = world.strategy("fedavg").begin(0), 0.0, 0
    again = 0
    for _ in range(6):
        state, entry = run_round(federation, state)
        again += len(entry.abandoned)
        assert sum(c.samples is not None for c in entry.clients) >= 3
        seconds += entry.duration + sum(before.duration for before in entry.abandoned)
        traffic += entry.bytes_up + entry.bytes_down + sum(b.bytes_up + b.bytes_down for b in entry.abandoned)
        assert (entry.seconds, entry.traffic) == (pytest.approx(seconds), traffic)
        asked = [before.clients for before in entry.abandoned] + [tuple(c.client for c in entry.clients)]
        assert len(set(asked)) == len(asked)
        assert sum(entry.lost.values()) == len(entry.missing) + sum(len(b.missing) for b in entry.abandoned)
    assert again > 0
    assert state.round == 6


def test_an_attempt_that_fails_leaves_no_trace_in_the_model(world):
    answers = iter([None] * 4)
    engine = FunctionEngine(
        lambda task: next(answers, None) or (None if task.assignment.attempt == 0 else moved(task))
    )
    begun = world.strategy("fedavg").begin(0)
    state, entry = run_round(bad(world, engine, policy=Policy(1, 3)), begun)
    assert len(entry.abandoned) == 1
    assert all(torch.equal(value, begun.tensors[name] + 1.0) for name, value in state.tensors.items())


def test_rounding_residuals_of_an_abandoned_attempt_are_not_kept(world):
    def answer(task):
        a = task.assignment
        if a.attempt == 0 and a.client != 7:
            return None
        left = {name: torch.full_like(value, 9.0) for name, value in task.tensors.items()}
        return Update(a.client, a.round, task.tensors, 10, 0.5, residuals=left, nonce=a.nonce)

    federation = replace(
        world.federation(world.strategy("fedavg"), FunctionEngine(answer), error_feedback=True),
        policy=Policy(at_least=2, attempts=2),
    )
    state, entry = run_round(federation, world.strategy("fedavg").begin(0))
    assert {c.client for c in entry.clients} == set(state.residuals)


def test_a_round_that_never_succeeds_ends_the_run_with_a_reason_and_the_rounds_before_are_whole(world):
    def answer(task):
        return None if task.assignment.round == 3 else moved(task)

    steps = run(bad(world, FunctionEngine(answer), policy=Policy(2, 3)), Stop(5))
    assert [next(steps)[1].round for _ in range(2)] == [1, 2]
    with pytest.raises(
        TrainingError, match=r"round 3 was begun 3 times and never had the 2 updates .*: no answer"
    ):
        next(steps)


def test_more_are_asked_than_wanted_and_the_first_count(world):
    federation = bad(world, policy=Policy(1, 5, oversample=2.0))
    state, entry = run_round(federation, world.strategy("fedavg").begin(0))
    assert len(entry.clients) == 8
    assert sum(c.samples is not None for c in entry.clients) == 4
    assert entry.lost == {"surplus": 4}
    first = sorted(entry.clients, key=lambda c: c.compute_seconds + c.transfer_seconds)[:4]
    assert {c.client for c in first} == {c.client for c in entry.clients if c.samples is not None}
    assert state.round == 1


def test_only_clients_that_are_awake_are_asked_and_the_server_waits_for_them(world):
    federation = bad(world, policy=Policy(1, 5), availability="day_night", day=1000.0, awake=0.02)
    state = world.strategy("fedavg").begin(0)
    waits = []
    for _ in range(4):
        at = state.seconds + federation.availability.wait(1, state.seconds)
        expected = federation.availability.candidates(12, at)
        state, entry = run_round(federation, state)
        waits.append(entry.idle)
        assert {c.client for c in entry.clients} <= set(expected.tolist())
    assert max(waits) > 0.0
    assert state.seconds >= sum(waits)
    with pytest.raises(TrainingError, match="at no time of the day are 12 clients awake"):
        run_round(replace(federation, policy=Policy(at_least=12)), state)


def test_clients_that_fall_asleep_between_two_attempts_are_waited_for(world):
    federation = bad(world, policy=Policy(1, 50), availability="day_night", day=40.0, awake=0.05, dropout=0.9)
    state, entries = world.strategy("fedavg").begin(0), []
    for _ in range(3):
        state, entry = run_round(federation, state)
        entries.append(entry)
    assert sum(len(entry.abandoned) for entry in entries) > 0
    spent = sum(e.idle + e.duration + sum(before.duration for before in e.abandoned) for e in entries)
    assert state.seconds == pytest.approx(spent)


@pytest.mark.parametrize(
    ("attack", "sent"),
    [("flip", lambda whole: whole - 10.0), ("scale", lambda whole: whole + 10.0), ("noise", None)],
)
def test_hostile_clients_send_what_harms(world, attack, sent):
    faults = Faults(1, 12, attackers=0.5, attack=attack, attack_scale=10.0)
    engine = FaultyEngine(FunctionEngine(moved), faults)
    federation = world.federation(world.strategy("fedavg"))
    state = world.strategy("fedavg").begin(0)
    plan = federation.strategy.assign(state, federation.fleet.status(torch.arange(12).numpy(), 1)).assignments
    task = moved_task(federation, state)
    for update in engine.run(plan, task):
        for name, tensor in update.tensors.items():
            whole = state.tensors[name]
            if not faults.hostile(update.client):
                assert torch.equal(tensor, whole + 1.0)
            elif sent is not None:
                torch.testing.assert_close(tensor, sent(whole))
            else:
                assert float((tensor - whole).abs().max()) > 0.5


def moved_task(federation, state):
    return lambda a: make_task(federation, state, a, lambda selection: as_sent(federation, state, selection))


def test_garbage_is_refused_whatever_it_is(world):
    engine = FaultyEngine(FunctionEngine(moved), Faults(1, 12, garbage=1.0))
    federation = bad(world, engine, policy=Policy(0, 1))
    begun = world.strategy("fedavg").begin(0)
    causes = set()
    state = begun
    for _ in range(12):
        state, entry = run_round(federation, state)
        causes |= set(entry.lost)
        assert len({lost.client for lost in entry.missing}) == 4
    assert same(state.tensors, begun.tensors)
    assert {"finite", "shape", "type", "names", "nonce", "round", "samples"} <= causes


def test_spoilt_updates_are_not_what_they_were(world):
    update = Update(1, 2, {"a": torch.ones(2, 2), "b": torch.ones(3)}, 5, 0.5, nonce=9)
    assert len({repr(spoilt(update, np.random.default_rng(seed))) for seed in range(60)}) == 9


def config(strategy, engine, **changes):
    chosen = heroes.recipes.recipe("digits", strategy).changed(BAD_DAY)
    return chosen.changed(
        {
            "federation.rounds": 3,
            "federation.cohort": 4,
            "training.batch_size": 4,
            "engine.name": engine,
            "evaluation.every_width": False,
            "robust.guard": True,
            **changes,
        }
    )


@pytest.mark.parametrize("strategy", representatives())
def test_a_bad_day_is_the_same_on_every_engine(strategy):
    few = steps(strategy, 3)
    one, two = (heroes.run(config(strategy, engine, **few)) for engine in ("in_process", "processes"))
    assert one.records == two.records
    assert same(one.state.tensors, two.state.tensors)
    assert sum(sum(record.lost.values()) for record in one.records) > 5


def test_a_run_on_bad_days_goes_on_as_if_it_had_never_stopped(tmp_path):
    def stop(record):
        raise KeyboardInterrupt

    wanted = config("heroes", "in_process", **{"exchange.up_bits": 4, "exchange.error_feedback": True})
    whole = heroes.run(wanted)
    with pytest.raises(KeyboardInterrupt):
        heroes.run(wanted, out=tmp_path / "run", on_round=stop)
    resumed = heroes.resume(tmp_path / "run")
    assert resumed.records == whole.records
    assert same(resumed.state.tensors, whole.state.tensors)
