"""What a round costs each client, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heroes.messages import Cohort, Selection
from heroes.planning.loads import Costs, assignments, fitted, load_of, widths_afforded

COHORT = Cohort(
    clients=np.array([7, 2]),
    devices=("board-4", "board-1"),
    speed=np.array([4e8, 1e8]),
    upload=np.array([100e3, 200e3]),
    download=np.array([1e6, 5e5]),
    overhead=np.array([0.0, 0.0]),
    fastest=4e8,
    usual=np.array([4e8, 1e8]),
)
WIDTHS = np.array([3, 1])


def test_a_load_by_hand(world):
    load = load_of(COHORT, WIDTHS, world.costs(), gradients=4)
    assert load.widths.tolist() == [3, 1]
    assert load.mu.tolist() == pytest.approx([0.015, 0.01])  # 6 MFLOP at 400, 1 at 100
    assert load.transfer.tolist() == pytest.approx([0.07 + 0.0071, 0.01 + 0.0042])
    # half a step each
    assert load.probing.tolist() == pytest.approx([0.03, 0.02])
    assert load.nu.tolist() == pytest.approx([0.1071, 0.0342])
    assert (load.bytes_up.tolist(), load.bytes_down.tolist()) == ([7000, 2000], [7100, 2100])


def test_without_probes_and_downloads_only_the_upload_is_left(world):
    load = load_of(COHORT, WIDTHS, world.costs(), count_download=False)
    assert load.nu.tolist() == load.transfer.tolist() == pytest.approx([0.07, 0.01])
    assert load.probing.tolist() == [0.0, 0.0]
    assert load.bytes_down.tolist() == [7100, 2100]  # they travel all the same


def test_assignments_are_plain_numbers_in_the_cohorts_order(world):
    load = load_of(COHORT, WIDTHS, world.costs(), gradients=2)
    selections = [Selection(3, (0, 1, 2), tuple(range(9))), Selection(1, (2,), (8,))]
    first, second = assignments(5, COHORT, load, 0.1, selections, [4, 9], [False, True])
    assert (first.client, first.device, first.round, first.tau, first.straggler) == (
        7,
        "board-4",
        5,
        4,
        False,
    )
    assert (second.client, second.device, second.round, second.tau, second.straggler) == (
        2,
        "board-1",
        5,
        9,
        True,
    )
    assert (first.selection, second.selection) == tuple(selections)
    assert second.compute_seconds == pytest.approx(9 * 0.01 + 0.01)
    assert second.seconds == pytest.approx(0.1 + 0.0142)
    for a in (first, second):
        assert {type(a.client), type(a.tau), type(a.bytes_up), type(a.bytes_down)} == {int}
        assert {type(a.step_seconds), type(a.probe_seconds), type(a.transfer_seconds)} == {float}
        assert type(a.straggler) is bool


def test_nobody_is_a_straggler_unless_said_so(world):
    load = load_of(COHORT, WIDTHS, world.costs())
    given = assignments(1, COHORT, load, 0.1, [Selection(3, (0, 1, 2), ()), Selection(1, (0,), ())], [1, 1])
    assert [a.straggler for a in given] == [False, False]


def test_batches_that_fill_a_round_by_hand(world):
    """One ends after 0.1371 s (4 steps of 0.015), the other after 0.0442 s (3 of 0.01). Of the time that it
    would wait it is given 0.01 s, what one more step takes.
    """
    load = load_of(COHORT, WIDTHS, world.costs())
    selections = [Selection(3, (0, 1, 2), ()), Selection(1, (0,), ())]
    given = assignments(1, COHORT, load, 0.1, selections, [4, 3])
    assert fitted(given, 9.0, patience=1.0) == given
    last, first = fitted(given, 9.0, patience=0.05)
    assert last == given[0]
    assert first.batch == pytest.approx(4 / 3)
    assert first.compute_seconds == pytest.approx(0.04)
    near = replace(given[0], client=8, transfer_seconds=given[0].transfer_seconds - 0.012)
    assert fitted((given[0], near), 9.0, 0.05) == (given[0], near)  # it would wait, but not for long
    (_, full) = fitted((given[0], near), 9.0, 0.01)
    assert (full.batch, full.seconds) == (pytest.approx(1.2), pytest.approx(given[0].seconds))


def test_batches_of_those_who_would_be_late_by_hand(world):
    """After 0.1071 s the first has done half of its 4 steps of 0.015 s; no batch is less than a quarter."""
    load = load_of(COHORT, WIDTHS, world.costs())
    selections = [Selection(3, (0, 1, 2), ()), Selection(1, (0,), ())]
    given = assignments(1, COHORT, load, 0.1, selections, [4, 3], [True, False])
    late, early = fitted(given, 0.1071, patience=0.05)
    assert (late.batch, late.seconds, late.straggler) == (pytest.approx(0.5), pytest.approx(0.1071), False)
    assert early.batch == pytest.approx(4 / 3)
    latest, _ = fitted(given, 0.05, patience=0.05)
    assert (latest.batch, latest.straggler) == (0.25, True)


def test_a_width_goes_by_the_usual_speed_whatever_today_is_like(world):
    good, bad = (replace(COHORT, speed=factor * COHORT.speed) for factor in (1.5, 0.5))
    for day in (COHORT, good, bad):  # 20 ms: 6 MFLOP at 400 MFLOP/s, 1 at 100
        assert widths_afforded(day, world.costs(), 0.02).tolist() == [3, 1]
    assert load_of(bad, WIDTHS, world.costs()).mu.tolist() == pytest.approx([0.03, 0.02])  # seconds do not


def test_the_limits_are_the_dense_models_step_the_models_own_and_seconds(world):
    speeds = [4e8, 2e8, 1e8, 3e8]
    costs = replace(world.costs(), probe_flops=2 * world.costs().step_flops)  # dense steps take twice as long
    cohort = world.cohort(speeds)
    assert widths_afforded(cohort, costs, "own").tolist() == [3, 2, 1, 2]  # 15 ms: 6, 3, 1.5 and 4.5 MFLOP
    assert widths_afforded(cohort, costs, "shared").tolist() == [3, 3, 2, 3]  # 30 ms
    assert widths_afforded(cohort, costs, 0.01).tolist() == [2, 1, 1, 2]


@given(st.floats(1e3, 1e15), st.floats(1e3, 1e15), st.integers(2, 64))
def test_every_class_affords_the_width_whose_step_takes_just_the_limit(unit, flops, widths):
    steps = flops * np.arange(1, widths + 1) / 3  # step and speed grow alike: every class is on the edge
    costs = Costs(steps, steps, np.ones(widths, dtype=int), np.ones(widths, dtype=int))
    speed = unit * np.arange(1, widths + 1) / 7
    ones = np.ones(widths)
    cohort = Cohort(np.arange(widths), ("",) * widths, ones, ones, ones, ones, float(speed[-1]), speed)
    for limit in ("own", "shared", float(steps[-1] / speed[-1])):
        assert widths_afforded(cohort, costs, limit).tolist() == list(range(1, widths + 1))
