"""Reads off a run when it reached a target and what it had by a time or traffic; means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from heroes.messages import RoundRecord
from heroes.report.metrics import Metric
from heroes.report.runs import RunData
from heroes.report.summary import MEGABYTE

TARGETS = 4  # how many are chosen where none are given
WIDE = 20  # times the lowest value: the range of a metric of which it is better to see the powers of ten


@dataclass(frozen=True)
class Evaluation:
    """The main metric of the complete model after a round, and what had been spent by then."""

    round: int
    seconds: float
    megabytes: float
    score: float


def evaluations(rows: Sequence[RoundRecord], smooth: int = 1) -> list[Evaluation]:
    """The evaluations of a run, oldest first, each the mean of the last `smooth` ones.

    The first `smooth - 1` are left out.
    """
    name = Metric.of(rows).name
    scored = [row for row in rows if name in row.scores]
    scores = [row.scores[name] for row in scored]
    return [
        Evaluation(
            row.round, row.seconds, row.traffic / MEGABYTE, fmean(scores[index - smooth + 1 : index + 1])
        )
        for index, row in enumerate(scored)
        if index >= smooth - 1
    ]


def reach(found: Sequence[Evaluation], target: float, metric: Metric) -> Evaluation | None:
    """The first evaluation at the target or better, None if there is none."""
    return next((each for each in found if metric.reaches(each.score, target)), None)


def score_at(
    run: RunData, found: Sequence[Evaluation], *, seconds: float = math.inf, megabytes: float = math.inf
) -> float | None:
    """The last evaluation within that time and traffic; None if there is none or the run had ended."""
    last = run.rows[-1]
    given_seconds, given_traffic = math.isfinite(seconds), math.isfinite(megabytes)
    if (given_seconds and last.seconds < seconds) or (given_traffic and last.traffic / MEGABYTE < megabytes):
        return None
    before = [each for each in found if each.seconds <= seconds and each.megabytes <= megabytes]
    return before[-1].score if before else None


def mean_waiting(run: RunData) -> float:
    """Mean over rounds of the clients' mean waiting time, in seconds."""
    return fmean(row.waiting for row in run.rows)


@dataclass(frozen=True)
class Spread:
    """One number per run, None where it was not reached. Mean and deviation are over those that did."""

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
        """The mean, the deviation where there is one, and how many reached it where not all did.

        >>> Spread((10.0, 14.0, None)).text(lambda value: f"{value:.1f}", unit=" s")
        '12.0 ± 2.8 s (2 of 3 reached)'
        """
        if self.mean is None:
            return missing
        spread = "" if self.std is None else f" ± {show(self.std)}"
        some = (
            ""
            if len(self.reached) == len(self.values)
            else f" ({len(self.reached)} of {len(self.values)} {missing.removeprefix('not ')})"
        )
        return f"{show(self.mean)}{spread}{unit}{some}"

    def as_json(self) -> dict[str, object]:
        return {
            "mean": self.mean,
            "std": self.std,
            "reached": len(self.reached),
            "of": len(self.values),
            "values": list(self.values),
        }


def chosen_targets(metric: Metric, scores: Sequence[float]) -> tuple[float, ...]:
    """Round values to aim at, the hardest one not beyond the best of the scores.

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
    """Four round numbers or more from `low` to `high`; none where these are the same.

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
    """Round shares to aim at, the highest one not above the best reached.

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
