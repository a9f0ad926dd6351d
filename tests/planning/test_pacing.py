"""Widths, rounds, paces, deadlines and steps, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heroes.planning.pacing import (
    Deadline,
    Estimates,
    Goal,
    Limits,
    Pace,
    affordable_widths,
    bound,
    calmest,
    fastest_deadline,
    mean_deadline,
    noise,
    rounds_in_budget,
    rounds_to_threshold,
    step_intervals,
    steps_aimed_at,
)

# L (G^2 + 18 sigma^2) = 2 (2 + 18) = 40, and tau* = sqrt(12 * 30 / 40) / 0.1 / sqrt(H) = 30 / sqrt(H)
ESTIMATES = Estimates(loss=30.0, smoothness=2.0, variance=1.0, gradient=2.0)
WIDE = Limits(tau_first=12, tau_min=1, tau_max=1000)
ONE_CLIENT = {"learning_rate": 0.1, "mu": 1.0, "nu": 2.0}


def test_the_width_is_the_largest_whose_step_fits_and_equality_counts():
    widths = affordable_widths(np.array([1.0, 4.0, 9.0, 16.0]), np.array([1.0, 2.0, 20.0]), limit=4.0)
    assert widths.tolist() == [2, 2, 4]


def test_a_client_that_affords_no_width_gets_width_one():
    assert affordable_widths(np.array([1.0, 4.0]), np.array([1.0, 1e-9]), limit=0.5).tolist() == [1, 1]


def test_a_step_that_takes_the_limit_up_to_rounding_fits():
    assert 0.1 * 3 > 0.3
    assert affordable_widths(np.array([0.1, 0.1 * 3]), np.array([1.0]), limit=0.3).tolist() == [2]


@pytest.mark.parametrize(("limit", "width"), [(6.0, 4), (3.5, 2), (3.0, 2), (2.0, 1)])
def test_a_wider_slice_that_is_cheaper_than_a_narrower_one_is_found(limit, width):
    assert affordable_widths(np.array([4.0, 3.0, 10.0, 6.0]), np.array([1.0]), limit).tolist() == [width]


def test_noise_is_smoothness_times_gradient_and_variance():
    assert noise(ESTIMATES) == 40.0


@pytest.mark.parametrize(
    ("threshold", "reducing_error", "rounds"),
    [
        (16.0, 0.0, 25),  # 16 * 30 * 40 / (3 * 16^2)
        (80.0, 0.0, 1),  # exactly one
        (1000.0, 0.0, 1),  # never less than one
        (15.9, 0.0, 26),  # 25.3, rounded up
        (19.0, 0.125, 25),  # 6 * 4 * 0.125 = 3 is lost to the reducing error
        (3.0, 0.125, None),
        (2.0, 0.125, None),
    ],
)
def test_rounds_to_a_threshold(threshold, reducing_error, rounds):
    assert rounds_to_threshold(ESTIMATES, reducing_error, threshold) == rounds


@given(
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.floats(0.0, 10),
    st.floats(0.1, 10),
    st.floats(0.0, 0.1),
    st.floats(1.0, 200.0),
)
def test_rounds_to_a_threshold_is_the_smallest_number_that_meets_it(
    loss, smoothness, variance, gradient, error, threshold
):
    estimates = Estimates(loss, smoothness, variance, gradient)
    rounds = rounds_to_threshold(estimates, error, threshold)

    def best_bound(h):
        return (
            2 * math.sqrt(4 * loss * smoothness * (gradient + 18 * variance) / (3 * h))
            + 6 * smoothness**2 * error
        )

    if rounds is None:
        assert 6 * smoothness**2 * error >= threshold
    else:
        assert best_bound(rounds) <= threshold * (1 + 1e-9)
        assert rounds == 1 or best_bound(rounds - 1) > threshold * (1 - 1e-9)


def test_rounds_in_a_budget_by_hand():
    assert rounds_in_budget(drive=30.0, mu=1.0, nu=2.0, seconds=152.0) == pytest.approx(16.0)  # 30*4 + 2*16
    assert rounds_in_budget(drive=30.0, mu=1.0, nu=0.0, seconds=120.0) == pytest.approx(16.0)  # 30*4
    assert rounds_in_budget(drive=30.0, mu=1.0, nu=2.0, seconds=5.0) == 1.0
    assert rounds_in_budget(drive=30.0, mu=1.0, nu=2.0, seconds=-5.0) == 1.0


@pytest.mark.parametrize(
    ("goal", "tau", "rounds", "rule"),
    [
        (Goal(9), 10.0, 9, "rounds"),
        (Goal(100), 3.0, 100, "rounds"),
        (Goal(0), 30.0, 1, "rounds"),
        (Goal(9, seconds_left=152.0), 7.5, 16, "time"),
        (Goal(9, seconds_left=0.0), 30.0, 1, "time"),
        (Goal(9, threshold=16.0), 6.0, 25, "threshold"),
        (Goal(9, threshold=16.0, seconds_left=152.0), 6.0, 25, "threshold"),
    ],
)
def test_the_bound_pace_follows_threshold_then_time_then_rounds(goal, tau, rounds, rule):
    found = steps_aimed_at(ESTIMATES, goal, WIDE, **ONE_CLIENT, calibrated=False)
    assert found.tau == pytest.approx(tau)
    assert (found.rounds, found.rule, found.scale, found.threshold_unreachable) == (rounds, rule, None, False)


@pytest.mark.parametrize(("seconds_left", "rule", "tau"), [(152.0, "time", 7.5), (None, "rounds", 10.0)])
def test_an_unreachable_threshold_is_flagged_and_the_next_rule_used(seconds_left, rule, tau):
    goal = Goal(9, threshold=3.0, seconds_left=seconds_left)
    found = steps_aimed_at(ESTIMATES, goal, WIDE, **ONE_CLIENT, reducing_error=0.125, calibrated=False)
    assert (found.rule, found.threshold_unreachable) == (rule, True)
    assert found.tau == pytest.approx(tau)


@pytest.mark.parametrize(("rounds_left", "tau"), [(1, 20.0), (10_000, 2.0)])
def test_the_pace_stays_within_its_limits(rounds_left, tau):
    assert (
        steps_aimed_at(ESTIMATES, Goal(rounds_left), Limits(12, 2, 20), **ONE_CLIENT, calibrated=False).tau
        == tau
    )


def test_the_calibrated_pace_starts_at_tau_first_and_follows_the_formula():
    first = steps_aimed_at(ESTIMATES, Goal(9), WIDE, **ONE_CLIENT)
    assert first.tau == pytest.approx(12.0)
    assert first.scale == pytest.approx(1.2)  # the formula says 10
    calmer = Estimates(loss=30.0 / 4, smoothness=2.0, variance=1.0, gradient=2.0)
    second = steps_aimed_at(calmer, Goal(9), WIDE, **ONE_CLIENT, scale=first.scale)
    assert second.tau == pytest.approx(6.0)  # half, as sqrt(F) halved
    third = steps_aimed_at(calmer, Goal(4), WIDE, learning_rate=0.05, mu=1.0, nu=2.0, scale=second.scale)
    assert third.tau == pytest.approx(6.0 * 2 * 1.5)  # half the learning rate, sqrt(9/4) more
    assert third.scale == first.scale


def test_the_calibrated_pace_spends_the_time_budget():
    first = steps_aimed_at(ESTIMATES, Goal(9, seconds_left=1400.0), WIDE, **ONE_CLIENT)
    assert (first.tau, first.rounds) == (pytest.approx(12.0), 100)  # 100 * (12*1 + 2) = 1400
    assert first.scale == pytest.approx(4.0)  # the formula says 30 / sqrt(100)
    second = steps_aimed_at(ESTIMATES, Goal(9, seconds_left=1242.0), WIDE, **ONE_CLIENT, scale=first.scale)
    assert (second.tau, second.rounds) == (pytest.approx(120 / 9), 81)  # 120*9 + 2*81 = 1242
    assert second.rounds * (second.tau * 1.0 + 2.0) == pytest.approx(1242.0)


def test_no_time_left_means_one_more_round_at_tau_first_when_calibrating():
    found = steps_aimed_at(ESTIMATES, Goal(9, seconds_left=0.0), WIDE, **ONE_CLIENT)
    assert (found.tau, found.rounds, found.rule) == (pytest.approx(12.0), 1, "time")


@pytest.mark.parametrize("scale", [None, 1.5])
@pytest.mark.parametrize(
    "estimates",
    [
        None,
        Estimates(30.0),
        Estimates(30.0, None, 1.0, 2.0),
        Estimates(30.0, 2.0, None, 2.0),
        Estimates(30.0, 2.0, 1.0, None),
        Estimates(30.0, 0.0, 1.0, 2.0),
        Estimates(30.0, 2.0, 0.0, 0.0),
        Estimates(30.0, math.nan, 1.0, 2.0),
        Estimates(30.0, 2.0, math.inf, 2.0),
        Estimates(30.0, 1e200, 1e200, 2.0),
        Estimates(0.0, 2.0, 1.0, 2.0),
        Estimates(math.nan, 2.0, 1.0, 2.0),
        Estimates(math.inf, 2.0, 1.0, 2.0),
        Estimates(1e-320, 1e150, 1e150, 2.0),
        Estimates(30.0, 1e-320, 1.0, 2.0),
    ],
)
def test_without_usable_estimates_the_pace_is_tau_first_and_the_scale_is_kept(estimates, scale):
    found = steps_aimed_at(
        estimates, Goal(9, threshold=16.0, seconds_left=100.0), WIDE, **ONE_CLIENT, scale=scale
    )
    assert found == Pace(12.0, 9, "no estimates", scale)


def test_a_learning_rate_of_zero_has_no_pace():
    assert steps_aimed_at(ESTIMATES, Goal(9), WIDE, learning_rate=0.0, mu=1.0, nu=2.0).rule == "no estimates"


def test_zero_variance_alone_is_a_usable_estimate():
    estimates = Estimates(loss=30.0, smoothness=2.0, variance=0.0, gradient=20.0)
    assert steps_aimed_at(estimates, Goal(9), WIDE, **ONE_CLIENT, calibrated=False).tau == pytest.approx(10.0)


def waiting(mu, nu, seconds, limits):
    steps = step_intervals(mu, nu, Deadline(seconds), 0.0, limits).high
    ends = nu + steps * mu
    return 1 - ends.mean() / ends.max()


@given(
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 2.0)), min_size=1, max_size=12),
    st.floats(0.5, 20.0),
    st.floats(0.0, 1.0),
)
def test_a_round_is_moved_only_if_clients_would_wait_and_then_they_wait_less(clients, seconds, patience):
    mu, nu = (np.array(each) for each in zip(*clients, strict=True))
    limits = Limits(2, 1, 200)
    found, before = calmest(mu, nu, seconds, limits, patience), waiting(mu, nu, seconds, limits)
    if before <= patience:
        assert found == seconds
    else:
        assert 0.75 * seconds * (1 - 1e-9) <= found <= 1.25 * seconds * (1 + 1e-9)
        assert waiting(mu, nu, found, limits) <= before + 1e-9


def test_mean_deadline_by_hand():
    mu, nu = np.array([1.0, 1.0]), np.array([0.0, 10.0])  # lines rise from T=1 to 4 and from T=11 to 14
    assert mean_deadline(mu, nu, 2.0, 1, 4) == pytest.approx(3.0)  # (3 + 1) / 2
    assert mean_deadline(mu, nu, 3.0, 1, 4) == pytest.approx(12.0)  # (4 + 2) / 2
    assert 4.0 <= mean_deadline(mu, nu, 2.5, 1, 4) <= 11.0  # every T between answers
    # tau_min: the last T at which nobody does more
    assert mean_deadline(mu, nu, 1.0, 1, 4) == pytest.approx(1.0)
    # tau_max: the first at which everybody does all
    assert mean_deadline(mu, nu, 4.0, 1, 4) == pytest.approx(14.0)


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("tau", [1.0, 5.5, 50.0])
def test_mean_deadline_of_equal_clients_is_their_own_time(count, tau):
    assert mean_deadline(np.full(count, 0.3), np.full(count, 2.0), tau, 1, 50) == pytest.approx(
        2.0 + 0.3 * tau
    )


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 20)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(0, 60),
    st.floats(0, 1),
)
def test_mean_deadline_agrees_with_bisection(clients, tau_min, extra, where):
    mu, nu = np.array(clients).T
    tau_max = tau_min + extra
    tau = tau_min + where * extra

    def steps(t):
        return float(np.clip((t - nu) / mu, tau_min, tau_max).mean())

    found = mean_deadline(mu, nu, tau, tau_min, tau_max)
    low, high = 0.0, float((nu + tau_max * mu).max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if steps(middle) < tau else (low, middle)
    assert steps(found) == pytest.approx(tau, rel=1e-6)
    if tau_min < tau < tau_max:
        assert found >= high - 1e-6 * max(high, 1.0)  # bisection finds the first of several answers


def test_the_client_that_needs_the_least_time_in_all_sets_the_deadline():
    paces = [Pace(10.0, 5, "time", None), Pace(4.4, 5, "time", None), Pace(1.0, 60, "time", None)]
    # 55, 49 and 66 in all
    deadline = fastest_deadline(np.array([1.0, 2.0, 0.1]), np.array([1.0, 1.0, 1.0]), paces)
    assert (deadline.setter, deadline.setter_tau, deadline.seconds) == (1, 4, 9.0)


@pytest.mark.parametrize(
    ("deadline", "rho", "low", "high"),
    [
        (9.0, 2.0, [6, 3], [8, 4]),
        (9.0, 0.0, [8, 4], [8, 4]),
        (9.5, 0.0, [8, 4], [8, 4]),  # nobody ends at 9.5 exactly
        (9.0, 100.0, [1, 1], [8, 4]),
        (100.0, 1.0, [20, 20], [20, 20]),  # tau_max
    ],
)
def test_step_intervals_by_hand(deadline, rho, low, high):
    found = step_intervals(
        np.array([1.0, 2.0]), np.array([1.0, 1.0]), Deadline(deadline), rho, Limits(1, 1, 20)
    )
    assert (found.low.tolist(), found.high.tolist(), found.straggler.tolist()) == (low, high, [False, False])


def test_a_client_that_ends_exactly_at_the_deadline_loses_no_step_to_rounding():
    assert math.floor(0.3 / 0.1) == 2
    found = step_intervals(np.array([0.1]), np.array([0.0]), Deadline(0.3), 0.0, Limits(1, 1, 20))
    assert (found.low.tolist(), found.high.tolist()) == ([3], [3])


def test_a_client_whose_upload_alone_exceeds_the_deadline_is_a_straggler_with_tau_min():
    mu, nu = np.ones(3), np.array([0.0, 0.0, 100.0])
    deadline = mean_deadline(mu, nu, 4.0, 1, 50)
    assert deadline == pytest.approx(5.5)  # (5.5 + 5.5 + 1) / 3
    found = step_intervals(mu, nu, Deadline(deadline), 1.0, Limits(1, 1, 50))
    assert (found.low.tolist(), found.high.tolist(), found.straggler.tolist()) == (
        [5, 5, 1],
        [5, 5, 1],
        [False, False, True],
    )


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 20)), min_size=1, max_size=8),
    st.floats(0.1, 100),
    st.floats(0, 10),
    st.integers(1, 5),
    st.integers(0, 60),
)
def test_unclamped_steps_end_within_rho_before_the_deadline(clients, deadline, rho, tau_min, extra):
    mu, nu = np.array(clients).T
    tau_max = tau_min + extra
    found = step_intervals(mu, nu, Deadline(deadline), rho, Limits(tau_min, tau_min, tau_max))
    tolerance = 1e-6 * max(deadline, 1.0)
    for n in range(len(mu)):
        low, high = int(found.low[n]), int(found.high[n])
        assert tau_min <= low <= high <= tau_max
        assert found.straggler[n] == (nu[n] + tau_min * mu[n] > deadline + 1e-9 * max(deadline, 1.0))
        if not found.straggler[n]:
            assert nu[n] + high * mu[n] <= deadline + tolerance
        if high < tau_max and not found.straggler[n]:
            assert nu[n] + (high + 1) * mu[n] > deadline  # one more step would be late
        if low < high and low > tau_min:
            assert nu[n] + low * mu[n] >= deadline - rho - tolerance
            assert nu[n] + (low - 1) * mu[n] < deadline - rho + tolerance


def test_the_bound_by_hand():
    assert bound(ESTIMATES, 9, 10, 0.1, 0.5) == pytest.approx(40 / 3 + 40 / 3 + 12)
    assert bound(ESTIMATES, 9, 5, 0.1, 0.0) == pytest.approx(80 / 3 + 20 / 3)
    assert bound(Estimates(30.0), 9, 10, 0.1, 0.0) is None
    assert bound(ESTIMATES, 9, 10, 0.0, 0.0) is None


@given(
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.floats(0.0, 10),
    st.floats(0.1, 10),
    st.integers(1, 500),
    st.floats(0.001, 1),
)
def test_the_bound_pace_minimises_the_bound(loss, smoothness, variance, gradient, rounds, eta):
    estimates = Estimates(loss, smoothness, variance, gradient)
    free = Limits(1, 0, 10**9)
    best = steps_aimed_at(
        estimates, Goal(rounds), free, learning_rate=eta, mu=1.0, nu=1.0, calibrated=False
    ).tau
    at_best = bound(estimates, rounds, best, eta, 0.0)
    assert at_best == pytest.approx(
        2 * math.sqrt(4 * loss * smoothness * (gradient + 18 * variance) / (3 * rounds))
    )
    for other in (best * 0.9, best * 1.1):
        assert bound(estimates, rounds, other, eta, 0.0) > at_best
