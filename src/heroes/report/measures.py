"""When a run reached a target, how good it was by some time or traffic, and means over seeds.

A target is reached at the first test at which the mean of the last three tests is at the target or better.
The time, traffic and rounds to it are those at the end of that test's round; nothing is interpolated. A run
with fewer than three tests reaches no target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean, stdev

from heroes.messages import TESTS, RoundRecord, settled
from heroes.report.metrics import Metric
from heroes.report.runs import RunData
from heroes.report.summary import MEGABYTE, spent_joules

TARGETS = 4  # how many are chosen if none are given
WIDE = 20  # a metric whose highest value is so many times its lowest is shown by powers of ten


def ratio(value: float) -> str:
    """How many times, as it is written: two places, and none where they would say nothing.

    >>> ratio(3.268), ratio(2233.7)
    ('3.27', '2,234')
    """
    return f"{value:.2f}" if value < 99.995 else f"{value:,.0f}"


@dataclass(frozen=True)
class Evaluation:
    """A test of the complete model: its score by the main metric, and what had been spent by then."""

    round: int
    seconds: float
    megabytes: float
    score: float
    joules: float | None = None  # None: not known


def evaluations(rows: Sequence[RoundRecord]) -> list[Evaluation]:
    """The tests of a run, oldest first."""
    name = Metric.of(rows).name
    return [
        Evaluation(row.round, row.seconds, row.traffic / MEGABYTE, row.scores[name], joules)
        for row, joules in zip(rows, spent_joules(rows), strict=True)
        if name in row.scores
    ]


def running_means(found: Sequence[Evaluation]) -> list[Evaluation]:
    """The tests from the third on, each with the mean of itself and the two before it as its score."""
    scores = [each.score for each in found]
    means = [settled(scores[max(0, end - TESTS) : end]) for end in range(1, len(scores) + 1)]
    return [replace(each, score=mean) for each, mean in zip(found, means, strict=True) if mean is not None]


def reach(means: Sequence[Evaluation], target: float, metric: Metric) -> Evaluation | None:
    """The first of the running means at the target or better; None if there is none."""
    return next((each for each in means if metric.reaches(each.score, target)), None)


def reached(run: RunData, target: float) -> Evaluation | None:
    """When a run reached a target; None if it did not."""
    return reach(running_means(evaluations(run.rows)), target, run.metric)


def score_at(
    run: RunData, found: Sequence[Evaluation], *, seconds: float = math.inf, megabytes: float = math.inf
) -> float | None:
    """The score of the last test within this time and traffic.

    None if there was no test by then, or if the run ended sooner.
    """
    last = run.rows[-1]
    given_seconds, given_traffic = math.isfinite(seconds), math.isfinite(megabytes)
    if (given_seconds and last.seconds < seconds) or (given_traffic and last.traffic / MEGABYTE < megabytes):
        return None
    before = [each for each in found if each.seconds <= seconds and each.megabytes <= megabytes]
    return before[-1].score if before else None


def mean_waiting(run: RunData) -> float:
    """The clients' mean waiting time in seconds, averaged over rounds."""
    return fmean(row.waiting for row in run.rows)


@dataclass(frozen=True)
class Spread:
    """One number for each run; None for a run without one. Mean and deviation leave those out."""

    values: tuple[float | None, ...]

    @property
    def reached(self) -> tuple[float, ...]:
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        return fmean(self.reached) if self.reached else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation; None for fewer than two."""
        return stdev(self.reached) if len(self.reached) > 1 else None

    def text(self, show: Callable[[float], str], missing: str = "not reached", unit: str = "") -> str:
        """The mean, the deviation if there is one, and how many runs have a number if not all do.

        >>> Spread((10.0, 14.0, None)).text(lambda value: f"{value:.1f}", unit=" s")
        '12.0 ± 2.8 s (2 of 3 reached)'
        """
        if self.mean is None:
            return missing
        spread = "" if self.std is None else f" ± {show(self.std)}"
        some = self._some(missing)
        return f"{show(self.mean)}{spread}{unit}{f' ({some})' if some else ''}"

    def _some(self, missing: str) -> str:
        """How many of the runs have a number; nothing if all do."""
        if len(self.reached) == len(self.values):
            return ""
        have = missing.removeprefix("not ").removeprefix("un")  # "not reached", "untrained"
        return f"{len(self.reached)} of {len(self.values)} {have}"

    def as_json(self) -> dict[str, object]:
        return {
            "mean": self.mean,
            "std": self.std,
            "low": min(self.reached, default=None),
            "high": max(self.reached, default=None),
            "reached": len(self.reached),
            "of": len(self.values),
            "values": list(self.values),
        }


class Ratios(Spread):
    """Ratios, one for each seed: their mean is the geometric one, and their range is told."""

    @property
    def mean(self) -> float | None:
        return geometric_mean(self.reached) if self.reached else None

    @property
    def std(self) -> float | None:
        """None: a deviation says little about ratios."""
        return None

    def text(self, show: Callable[[float], str], missing: str = "not reached", unit: str = "") -> str:
        """The geometric mean, the range if there is one, and how many seeds have a ratio if not all do.

        >>> Ratios((2.0, 8.0, None)).text(lambda value: f"{value:.1f}", unit="x")
        '4.0x (2.0 to 8.0, 2 of 3 reached)'
        """
        if self.mean is None:
            return missing
        ends = f"{show(min(self.reached))} to {show(max(self.reached))}" if len(self.reached) > 1 else ""
        beside = ", ".join(each for each in (ends, self._some(missing)) if each)
        return f"{show(self.mean)}{unit}{f' ({beside})' if beside else ''}"


def chosen_targets(metric: Metric, scores: Sequence[float]) -> tuple[float, ...]:
    """Targets: four round values, of which the best of the scores reaches even the hardest.

    >>> chosen_targets(Metric("rmse", lower_is_better=True), (2.9, 1.4, 0.83))
    (1.0, 1.5, 2.0, 2.5)
    """
    best = metric.best(scores)
    if best is None:
        return ()
    if metric.share and not metric.lower_is_better:
        return round_targets(best)
    within = round_values(min(scores), max(scores))
    return within[:TARGETS] if metric.lower_is_better else within[-TARGETS:]


def round_values(low: float, high: float) -> tuple[float, ...]:
    """Four or more round numbers from `low` to `high`; none if those are equal.

    >>> round_values(0.83, 2.9), round_values(-0.4, 0.31), round_values(17.0, 800.0)
    ((1.0, 1.5, 2.0, 2.5), (-0.4, -0.2, 0.0, 0.2), (20.0, 50.0, 100.0, 200.0, 500.0))
    """
    if 0 < low < high / WIDE:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        series = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
        return tuple(value for value in series if low <= value <= high)
    span = high - low
    if not span > max(1e-9 * max(abs(low), abs(high)), 1e-280):
        return ()
    power = math.floor(math.log10(span))
    steps = [float(f"{digit}e{power - back}") for back in (0, 1) for digit in (5, 2.5, 2, 1)]
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 >= TARGETS:
            return tuple(float(f"{step * number:.12g}") for number in range(first, last + 1))
    return ()


def round_targets(best: float, count: int = TARGETS) -> tuple[float, ...]:
    """Targets for a share from 0 to 1: round values, the highest not above the best score.

    >>> round_targets(0.967), round_targets(0.12)
    ((0.8, 0.85, 0.9, 0.95), (0.06, 0.08, 0.1, 0.12))
    """
    for parts in (20, 50, 100, 200, 1000):
        highest = math.floor(best * parts + 1e-9)
        if highest >= count:
            return tuple(number / parts for number in range(highest - count + 1, highest + 1))
    return ()


def round_marks(limit: float) -> tuple[float, ...]:
    """Three to five round numbers up to a limit.

    >>> round_marks(59.5), round_marks(12.6)
    ((10.0, 20.0, 30.0, 40.0, 50.0), (2.5, 5.0, 7.5, 10.0, 12.5))
    """
    if not (math.isfinite(limit) and limit > 1e-9):
        return ()
    power = math.floor(math.log10(limit))
    steps = [float(f"{digit}e{power - back}") for back in (0, 1) for digit in (5, 2.5, 2, 1)]
    step = next(step for step in steps if limit / step >= 3)
    return tuple(float(f"{step * number:.6g}") for number in range(1, math.floor(limit / step + 1e-9) + 1))
