"""Bad days that repeat exactly, and who of a round is in when."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from heroes.fleet.clock import VirtualClock
from heroes.fleet.faults import GONE, KINDS, Faults
from heroes.messages import Lost

RATES = {"dropout": 0.1, "upload_loss": 0.15, "crash": 0.05, "stall": 0.2, "garbage": 0.25}


class Told(Faults):
    """Faults that happen to the clients one names."""

    def __init__(self, silent=False, stall_factor=10.0, **kinds):
        super().__init__(0, 10, silent=silent, stall_factor=stall_factor)
        object.__setattr__(
            self, "kinds", {int(name.removeprefix("client")): kind for name, kind in kinds.items()}
        )

    def draw(self, assignment):
        return self.kinds.get(assignment.client)


@pytest.fixture
def plan(world):
    """Four clients that take 7, 9, 11 and 13 seconds: 1, 2, 3, 4 steps of 2 s, 1 s of probes, 4 s of
    transfer.
    """
    return [world.assignment(client, tau=client + 1) for client in range(4)]


def test_faults_come_as_often_as_configured_one_at_a_time(world):
    faults = Faults(3, 100, **RATES)
    seen = [faults.draw(world.assignment(client, round=r)) for r in range(1, 41) for client in range(100)]
    for kind, rate in RATES.items():
        assert seen.count(kind) / len(seen) == pytest.approx(rate, abs=0.02)
    assert seen.count(None) / len(seen) == pytest.approx(0.25, abs=0.02)
    assert set(seen) == {*KINDS, None}


def test_faults_repeat_with_the_seed_and_are_drawn_anew_for_every_round_and_attempt(world):
    def drawn(seed, **where):
        return [Faults(seed, 50, **RATES).draw(world.assignment(client, **where)) for client in range(50)]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(1)), tuple(drawn(2)), tuple(drawn(1, round=2)), tuple(drawn(1, attempt=1))}) == 4


def test_without_rates_nothing_happens(world):
    assert all(Faults(0, 9).draw(world.assignment(client)) is None for client in range(9))


def test_attackers_are_exactly_the_share_and_the_same_for_good():
    faults = Faults(5, 40, attackers=0.2)
    hostile = [client for client in range(40) if faults.hostile(client)]
    assert len(hostile) == 8
    assert hostile == [client for client in range(40) if Faults(5, 40, attackers=0.2).hostile(client)]
    assert hostile != [client for client in range(40) if Faults(6, 40, attackers=0.2).hostile(client)]


def test_half_of_all_clients_are_awake_at_any_time_each_for_half_a_day():
    faults = Faults(0, 2000, availability="day_night", day=100.0, awake=0.5)
    hours = np.array([faults.available(float(second)) for second in range(200)])
    assert np.abs(hours.mean(axis=1) - 0.5).max() < 0.05
    assert np.abs(hours.mean(axis=0) - 0.5).max() < 0.02
    assert (hours[:100] == hours[100:]).all()  # every day alike
    assert Faults(0, 5).available(3.0) is None


def test_without_faults_a_round_lasts_as_long_as_its_slowest_client(plan):
    clock = VirtualClock()
    assert clock.absent(plan, 4) == ()
    assert clock.elapse(plan, 4).finished.tolist() == [7.0, 9.0, 11.0, 13.0]


def test_the_first_updates_end_a_round_that_asked_more_than_it_wants(plan):
    clock = VirtualClock()
    assert [(lost.client, lost.cause) for lost in clock.absent(plan, 3)] == [(3, "surplus")]
    timing = clock.elapse(plan, 3)
    assert (timing.duration, timing.waiting.tolist()) == (11.0, [4.0, 2.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("deadline", "factor", "late", "duration"),
    [
        (9.0, None, [2, 3], 9.0),
        (None, 0.75, [2, 3], 9.75),  # of 13 s
        (12.0, 0.75, [2, 3], 9.75),
        (9.5, 10.0, [2, 3], 9.5),
        (13.0, None, [], 13.0),
        (100.0, 1.0, [], 13.0),
        (1.0, None, [0, 1, 2, 3], 1.0),
    ],
)
def test_who_is_not_in_at_the_deadline_is_late(plan, deadline, factor, late, duration):
    clock = VirtualClock(None, deadline, factor)
    assert [(lost.client, lost.cause) for lost in clock.absent(plan, 4)] == [
        (client, "late") for client in late
    ]
    assert clock.elapse(plan, 4).duration == duration


@pytest.mark.parametrize(
    ("kind", "heard"),
    [("dropout", 0.0), ("crash", 4.5), ("upload_loss", 13.0), ("stall", 13.0 + 9 * 9.0), ("garbage", 13.0)],
)
def test_when_the_server_hears_of_a_client(plan, kind, heard):
    assert Told(client3=kind).heard(plan[3]) == heard  # 9 s of training, 4 s of transfer


def test_a_client_that_is_gone_does_not_hold_up_the_round_unless_it_is_silent(plan):
    loud = VirtualClock(Told(client3="dropout"))
    assert loud.absent(plan, 4) == (Lost(3, GONE["dropout"], "dropout"),)
    assert loud.elapse(plan, 4).duration == 11.0
    silent = VirtualClock(Told(client3="dropout", silent=True), deadline=50.0)
    assert silent.absent(plan, 4) == (Lost(3, GONE["dropout"], "dropout"),)
    assert silent.elapse(plan, 4).duration == 50.0
    assert silent.elapse(plan, 3).duration == 11.0  # enough are in


def test_a_stalled_client_is_waited_for_or_late(plan):
    faults = Told(client0="stall")  # 3 s of training take 30, and 4 s of transfer
    assert VirtualClock(faults).elapse(plan, 4).duration == 34.0
    assert VirtualClock(faults).absent(plan, 4) == ()
    late = VirtualClock(faults, deadline_factor=1.5)  # 19.5 s
    assert late.absent(plan, 4) == (Lost(0, "not in after 19.50 seconds", "late"),)
    assert late.elapse(plan, 4).duration == 19.5


def test_a_round_that_everybody_left_at_once_takes_no_time(plan):
    everybody = VirtualClock(Told(client0="dropout", client1="dropout", client2="dropout", client3="dropout"))
    assert everybody.elapse(plan, 4).duration == 0.0
    assert len(everybody.absent(plan, 4)) == 4


def test_a_silent_crowd_ends_with_the_deadline(plan):
    faults = replace(Faults(0, 4, dropout=1.0), silent=True)
    timing = VirtualClock(faults, deadline=5.0).elapse(plan, 4)
    assert timing.duration == 5.0
    assert math.isfinite(timing.finished.max())
