"""Who can be asked: everybody, those awake, or those connected; and how long to wait for enough of them."""

from __future__ import annotations

import numpy as np
import pytest

from heroes.errors import TrainingError
from heroes.fleet.availability import Connected, DayAndNight, Everybody
from heroes.fleet.faults import Faults


def test_everybody_can_always_be_asked_at_once():
    assert Everybody().candidates(4, 123.0).tolist() == [0, 1, 2, 3]
    assert Everybody().wait(99, 123.0) == 0.0


def test_those_awake_can_be_asked_and_the_wait_is_the_shortest_part_of_a_day():
    day = DayAndNight(Faults(1, 12, availability="day_night", day=960.0, awake=0.1))
    awake = [len(day.candidates(12, 10.0 * part)) for part in range(97)]
    assert {0, 1} <= set(awake) <= set(range(12))
    for needed in range(1, max(awake) + 1):
        assert day.wait(needed, 0.0) == 10.0 * next(n for n, count in enumerate(awake) if count >= needed)
    assert day.candidates(12, 50.0).tolist() == np.flatnonzero(day.faults.available(50.0)).tolist()
    with pytest.raises(TrainingError, match=f"at no time of the day are {max(awake) + 1} clients awake"):
        day.wait(max(awake) + 1, 0.0)


def test_without_nights_everybody_is_awake():
    always = DayAndNight(Faults(1, 12))
    assert always.candidates(12, 5.0).tolist() == list(range(12))
    assert always.wait(12, 5.0) == 0.0


@pytest.mark.parametrize(("mask", "clients"), [(None, [0, 1, 2]), (np.array([True, False, True]), [0, 2])])
def test_those_connected_can_be_asked(mask, clients):
    connected = Connected(lambda: mask)
    assert connected.candidates(3, 0.0).tolist() == clients
    assert connected.wait(3, 0.0) == 0.0


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Connected),
        ({"faults.dropout": 0.5}, Connected),
        ({"faults.availability": "day_night"}, DayAndNight),
    ],
)
def test_the_configuration_says_who_can_be_asked(world, changes, kind):
    assert isinstance(world.assembled("fedavg", changes).availability, kind)
