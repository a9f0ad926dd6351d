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


def test_steps_and_batches_that_fit_a_round_by_hand(world):
    """One ends after 0.1371 s (4 steps of 0.015), the other after 0.0442 s (3 of 0.01)."""
    load = load_of(COHORT, WIDTHS, world.costs())
    selections = [Selection(3, (0, 1, 2), ()), Selection(1, (0,), ())]
    given = assignments(1, COHORT, load, 0.1, selections, [4, 3], [True, False])
    assert fitted(given, 0.13, 1.0, 9) == given
    late, early = fitted(given, 0.1071, 0.05, 9)
    assert (late.tau, late.batch, late.straggler) == (4, pytest.approx(0.5), False)
    assert late.seconds == pytest.approx(0.1071)
    assert (early.tau, early.batch) == (4, 1.5)  # more would be another matter
    latest, _ = fitted(given, 0.05, 0.05, 9)
    assert (latest.batch, latest.straggler) == (0.25, True)


@pytest.mark.parametrize(
    ("more", "tau", "batch"),
    [(0.004, 3, 3.4 / 3), (0.006, 4, 3.6 / 4), (0.0, 3, 1.0), (-0.004, 3, 2.6 / 3)],
)
def test_the_nearest_number_of_steps_is_done(world, more, tau, batch):
    load = load_of(COHORT, WIDTHS, world.costs())
    selections = [Selection(3, (0, 1, 2), ()), Selection(1, (0,), ())]
    given = assignments(1, COHORT, load, 0.1, selections, [4, 3])
    seconds = given[1].seconds + more
    found = fitted(given, seconds, 0.05, 9)[1]
    assert (found.tau, found.batch) == (tau, pytest.approx(batch))
    assert found.seconds == pytest.approx(seconds)
    assert fitted(given, seconds, 0.05, 3)[1].tau == 3  # no more than may be


def test_who_would_not_wait_for_long_does_what_it_would(world):
    load = load_of(COHORT, WIDTHS, world.costs())
    selections = [Selection(3, (0, 1, 2), ()), Selection(1, (0,), ())]
    first, _ = assignments(1, COHORT, load, 0.1, selections, [4, 3])
    near = replace(first, client=8, transfer_seconds=first.transfer_seconds - 0.012)
    assert fitted((first, near), first.seconds, 0.05, 9) == (first, near)
    assert fitted((first, near), first.seconds, 0.01, 9)[1].seconds == pytest.approx(first.seconds)


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
