"""How wide and how long: the server's arithmetic for widths and local steps. Pure functions of plain numbers.

Letters as in the paper: mu seconds of one step, nu seconds a client spends on everything else, T the length
of the round, H the rounds still needed, F, L, sigma^2, G^2 the estimates, eta the learning rate, beta^2 the
reducing error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heroes.messages import Floats, Integers
from heroes.planning.solving import root

_SLACK = 1e-9  # relative; keeps a client that finishes exactly at T from losing a step to rounding
_NEAR = 0.25  # by how much a round may become shorter or longer so that clients wait less


@dataclass(frozen=True)
class Estimates:
    """Properties of the loss around the current model: F, L, sigma^2 and G^2 of the convergence bound."""

    loss: float  # NaN: not known
    smoothness: float | None = None
    variance: float | None = None
    gradient: float | None = None


def affordable_widths(step_flops: Floats, speed: Floats, limit: float) -> Integers:
    """For every client the largest width p whose step takes at most `limit` seconds, at least 1.

    `step_flops[p - 1]` belongs to width p.
    """
    fits = step_flops[None, :] / speed[:, None] <= limit * (1 + _SLACK)
    widest = len(step_flops) - np.argmax(fits[:, ::-1], axis=1)
    return np.where(fits.any(axis=1), widest, 1).astype(np.int64)


@dataclass(frozen=True)
class Goal:
    """What decides H, in this order: a convergence threshold, a time budget, the rounds left."""

    rounds_left: int
    threshold: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class Limits:
    """What tau may be."""

    tau_first: int
    tau_min: int
    tau_max: int

    def clamp(self, tau: float) -> float:
        return min(max(tau, float(self.tau_min)), float(self.tau_max))


@dataclass(frozen=True)
class Pace:
    """The step count aimed at, and where it came from."""

    tau: float
    rounds: int
    rule: str
    scale: float | None
    threshold_unreachable: bool = False


def noise(estimates: Estimates) -> float | None:
    """L * (G^2 + 18 sigma^2), or None if an estimate is missing or the product is not positive."""
    parts = (estimates.smoothness, estimates.variance, estimates.gradient)
    if any(part is None or not math.isfinite(part) for part in parts):
        return None
    smoothness, variance, gradient = (float(part) for part in parts if part is not None)
    product = smoothness * (gradient + 18 * variance)
    return product if product > 0 and math.isfinite(product) else None


def rounds_to_threshold(estimates: Estimates, reducing_error: float, threshold: float) -> int | None:
    """The smallest H at which the bound, at its best tau, meets the threshold; None if no H does."""
    spread = noise(estimates)
    if spread is None or estimates.smoothness is None:
        return None
    slack = threshold - 6 * estimates.smoothness**2 * reducing_error
    if slack <= 0:
        return None
    rounds = 16 * estimates.loss * spread / (3 * slack**2)
    return max(1, math.ceil(rounds)) if math.isfinite(rounds) else None


def rounds_in_budget(drive: float, mu: float, nu: float, seconds: float) -> float:
    """The H that spends the budget, at least 1.

    It is the root of drive*sqrt(H)*mu + H*nu = seconds, where tau = drive/sqrt(H).
    """
    if seconds <= 0:
        return 1.0
    if nu <= 0:
        root = seconds / (drive * mu)
    else:
        root = (math.sqrt((drive * mu) ** 2 + 4 * nu * seconds) - drive * mu) / (2 * nu)
    return max(1.0, root**2)


def steps_aimed_at(
    estimates: Estimates | None,
    goal: Goal,
    limits: Limits,
    *,
    learning_rate: float,
    mu: float,
    nu: float,
    reducing_error: float = 0.0,
    calibrated: bool = True,
    scale: float | None = None,
) -> Pace:
    """The step count that minimises the convergence bound, for a client with this mu and nu.

    `calibrated` multiplies the formula by one constant, chosen so that its first value is `tau_first`; pass
    the `scale` of the answer in again next round. Without usable estimates the answer is `tau_first`.
    """
    literal = None if estimates is None else _literal(estimates, learning_rate)
    if estimates is None or literal is None:
        return Pace(limits.clamp(limits.tau_first), max(1, goal.rounds_left), "no estimates", scale)
    rounds, rule, unreachable = _fixed_rounds(estimates, goal, reducing_error)
    if rounds is None:
        assert goal.seconds_left is not None
        if calibrated and scale is None:
            exact = max(1.0, goal.seconds_left / (limits.tau_first * mu + nu))
        else:
            drive = literal * (scale if calibrated and scale is not None else 1.0)
            exact = rounds_in_budget(drive, mu, nu, goal.seconds_left)
    else:
        exact = float(rounds)
    tau = literal / math.sqrt(exact)
    if calibrated:
        scale = limits.tau_first / tau if scale is None else scale
        tau *= scale
    return Pace(limits.clamp(tau), max(1, round(exact)), rule, scale if calibrated else None, unreachable)


def _literal(estimates: Estimates, learning_rate: float) -> float | None:
    """tau* times sqrt(H), or None if the estimates give no positive finite number."""
    spread = noise(estimates)
    if spread is None or not estimates.loss > 0 or learning_rate <= 0:
        return None
    literal = math.sqrt(12 * estimates.loss / spread) / learning_rate
    return literal if 0 < literal < math.inf else None


def _fixed_rounds(estimates: Estimates, goal: Goal, reducing_error: float) -> tuple[int | None, str, bool]:
    """H if it is the same for all clients, its rule, and whether the threshold is out of reach."""
    unreachable = False
    if goal.threshold is not None:
        rounds = rounds_to_threshold(estimates, reducing_error, goal.threshold)
        if rounds is not None:
            return rounds, "threshold", False
        unreachable = True
    if goal.seconds_left is not None:
        return None, "time", unreachable
    return max(1, goal.rounds_left), "rounds", unreachable


def worthwhile_steps(mu: float, nu: float, learning_rate: float, drift: float) -> float:
    """The tau that brings the most progress a second.

    A client's steps count less the further it is from the others: tau of them bring what
    tau / (1 + tau * eta / drift) would bring together, and take tau*mu + nu seconds. The best of that is
    sqrt(drift * nu / (eta * mu)): dear rounds are worth more steps, great steps drift sooner.

    >>> worthwhile_steps(mu=0.1, nu=0.1, learning_rate=0.25, drift=25)
    10.0
    """
    return math.sqrt(drift * nu / (learning_rate * mu))


def thrifty_steps(mu: float, nu: float, half: float, thrift: float) -> float:
    """The largest tau that brings all but `thrift` of the most progress a second.

    Drift grows slowly at first: tau steps bring what tau / (1 + (tau / half)^2) would bring together, and
    take tau*mu + nu seconds. Around the best of that progress hardly changes, while traffic falls as rounds
    become longer. With s = nu / mu, a step that counts takes mu * (1 + (tau / half)^2) * (1 + s / tau)
    seconds, least where 2 tau^3 + s tau^2 = s half^2.

    >>> round(thrifty_steps(mu=0.1, nu=0.2, half=10.0, thrift=0.0), 3)
    4.331
    >>> round(thrifty_steps(mu=0.1, nu=0.2, half=10.0, thrift=0.1), 3)
    7.109
    """
    s = nu / mu

    def cost(tau: float) -> float:
        return (1 + (tau / half) ** 2) * (1 + s / tau)

    if nu <= 0:  # rounds cost nothing: the fewer steps the better
        return half * math.sqrt(1 / (1 - thrift) - 1)
    best = root(lambda tau: 2 * tau**3 + s * tau**2 - s * half**2, 0.0, half)
    allowed = cost(best) / (1 - thrift)
    return root(lambda tau: cost(tau) - allowed, best, half * math.sqrt(allowed - 1))


def mean_deadline(mu: Floats, nu: Floats, tau: float, tau_min: int, tau_max: int) -> float:
    """The T at which the average client does `tau` steps.

    It is the root of mean(clamp((T - nu) / mu, tau_min, tau_max)) = tau. The left side is piecewise linear: a
    client's line starts at nu + tau_min*mu, rises by 1/mu and ends at nu + tau_max*mu.

    >>> round(mean_deadline(np.array([1.0, 2.0]), np.array([0.0, 1.0]), 4.0, 1, 100), 6)
    5.666667
    """
    knots = np.concatenate([nu + tau_min * mu, nu + tau_max * mu])
    bends = np.concatenate([1.0 / mu, -1.0 / mu]) / len(mu)
    order = np.argsort(knots, kind="stable")
    knots, bends = knots[order], bends[order]
    slopes = np.cumsum(bends)
    heights = tau_min + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(knots))])
    after = int(np.searchsorted(heights, tau, side="left"))
    if after == 0:
        return float(knots[0])
    if after == len(heights):
        return float(knots[-1])
    return float(knots[after - 1] + (tau - heights[after - 1]) / slopes[after - 1])


@dataclass(frozen=True)
class Deadline:
    """When the round should end. Under `fastest` one client sets it and keeps its own tau."""

    seconds: float
    setter: int | None = None
    setter_tau: int | None = None


def calmest(mu: Floats, nu: Floats, seconds: float, limits: Limits, patience: float) -> float:
    """This length of a round; or if clients would wait more than `patience` of it, in the mean, one near it,
    in which they wait least.

    Steps are whole, and where few fit into a round a little more or less time is lost or won for many.

    >>> calmest(np.array([1.0, 1.9]), np.array([0.0, 0.2]), 3.9, Limits(2, 1, 9), 0.05)
    4.017
    """
    tried = seconds * np.concatenate([[1.0], np.linspace(1 - _NEAR, 1 + _NEAR, 101)])[:, None]
    steps = np.floor((tried + _SLACK * np.maximum(tried, 1.0) - nu) / mu)
    ends = nu + np.clip(steps, limits.tau_min, limits.tau_max) * mu
    waiting = 1 - ends.mean(axis=1) / ends.max(axis=1)
    return seconds if waiting[0] <= patience else float(tried[np.argmin(waiting), 0])


def fastest_deadline(mu: Floats, nu: Floats, paces: list[Pace]) -> Deadline:
    """The deadline set by the client that would need the least time, H * (tau*mu + nu), in all."""
    totals = [p.rounds * (p.tau * m + n) for p, m, n in zip(paces, mu.tolist(), nu.tolist(), strict=True)]
    setter = int(np.argmin(totals))
    tau = max(1, round(paces[setter].tau))
    return Deadline(float(tau * mu[setter] + nu[setter]), setter, tau)


@dataclass(frozen=True)
class Intervals:
    """For every client the steps that end within rho seconds before the deadline, and stragglers."""

    low: Integers
    high: Integers
    straggler: np.ndarray[tuple[int], np.dtype[np.bool_]]


def step_intervals(mu: Floats, nu: Floats, deadline: Deadline, rho: float, limits: Limits) -> Intervals:
    """[tau_a, tau_b] of every client, within the limits.

    An empty interval becomes [tau_b, tau_b]; the client that sets the deadline keeps its tau.
    """
    tau_min, tau_max = limits.tau_min, limits.tau_max
    slack = _SLACK * max(deadline.seconds, 1.0)
    high = np.floor((deadline.seconds + slack - nu) / mu)
    low = np.ceil((deadline.seconds - rho - slack - nu) / mu)
    high = np.clip(high, tau_min, tau_max).astype(np.int64)
    low = np.minimum(np.clip(low, tau_min, tau_max).astype(np.int64), high)
    if deadline.setter is not None and deadline.setter_tau is not None:
        low[deadline.setter] = high[deadline.setter] = deadline.setter_tau
    return Intervals(low, high, nu + tau_min * mu > deadline.seconds + slack)


def bound(
    estimates: Estimates, rounds: int, tau: float, learning_rate: float, reducing_error: float
) -> float | None:
    """The convergence bound B(H, tau) = 4F/(H eta tau) + (L eta tau / 3)(G^2 + 18 sigma^2) + 6 L^2 beta^2."""
    spread = noise(estimates)
    if spread is None or estimates.smoothness is None or learning_rate <= 0 or tau <= 0:
        return None
    drift = learning_rate * tau
    return (
        4 * estimates.loss / (rounds * drift)
        + spread * drift / 3
        + 6 * estimates.smoothness**2 * reducing_error
    )
