"""What each change to Heroes does: every row beside the first, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from heroes.report.measures import Ratios, Spread, ratio, reached
from heroes.report.summary import final_score
from heroes.studies.figures import Chapter
from heroes.studies.tables import Outcome, waiting
from heroes.studies.telling.markdown import grid, percent
from heroes.studies.telling.verdicts import listed

_LITTLE_TIME, _LITTLE_SCORE = 0.03, 0.005  # what makes no difference, whatever the seeds say
_RULE = (
    "*Slower, faster, worse, better: with every seed the same way, by more than {time} of the time or "
    "{score} points. Time and traffic are those of the row over those of {first}, to the hardest of the "
    "targets that both reached with most seeds.*"
)


@dataclass(frozen=True)
class Effect:
    """A row beside the first: its time and traffic over the first's at a target, and how much higher its
    score is.
    """

    outcome: Outcome
    target: float | None
    times: Spread
    traffic: Spread
    points: Spread
    same: bool
    alone: tuple[
        float, ...
    ] = ()  # for every seed with which one of the two got there alone: 0 if it was the row

    @property
    def words(self) -> list[str]:
        """What can be said of it."""
        if self.same:
            return ["the same"]
        longer = [each - 1.0 for each in (*self.times.reached, *self.alone)]
        told = [
            _sign(longer, _LITTLE_TIME, "slower", "faster"),
            _sign(self.points.reached, _LITTLE_SCORE, "better", "worse"),
        ]
        return [word for word in told if word] or ["even"]


def _sign(gains: Sequence[float], little: float, above: str, below: str) -> str:
    if not gains:
        return ""
    return above if min(gains) > little else below if max(gains) < -little else ""


def effects(chapter: Chapter) -> list[Effect]:
    """Every row that has runs, beside the first."""
    first, *others = chapter.outcomes
    return [_effect(first, each, chapter.plan.targets) for each in others if each.runs and first.runs]


def _effect(first: Outcome, other: Outcome, targets: Sequence[float]) -> Effect:
    mine, theirs = ({run.seed: run for run in each.runs} for each in (first, other))
    pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
    scores = [(final_score(a.rows), final_score(b.rows)) for a, b in pairs]
    points = Spread(tuple(None if a is None or b is None else b - a for a, b in scores))
    same = all(a.path == b.path for a, b in pairs)
    best = Effect(other, None, Ratios(()), Ratios(()), points, same)
    for target in sorted(targets, reverse=True):
        hits = [(reached(a, target), reached(b, target)) for a, b in pairs]
        times = Ratios(tuple(b.seconds / a.seconds if a and b else None for a, b in hits))
        traffic = Ratios(tuple(b.megabytes / a.megabytes if a and b else None for a, b in hits))
        if len(times.reached) > len(best.times.reached):
            alone = tuple(math.inf if b is None else 0.0 for a, b in hits if (a is None) != (b is None))
            best = Effect(other, target, times, traffic, points, same, alone)
    return best


def lines(of_plan: Sequence[Chapter]) -> Iterator[str]:
    """The table, and what it teaches in sentences."""
    for chapter in of_plan:
        first, found = chapter.outcomes[0], effects(chapter)
        if not first.runs:
            yield from (f"No run of {first.label} is there yet, which the others are compared with.", "")
            continue
        header = ("changed", "seeds", "time", "traffic", "accuracy in the end", "waiting", "")
        rule = _RULE.format(first=first.label, time=percent(_LITTLE_TIME), score=f"{100 * _LITTLE_SCORE:g}")
        rows = [_row(first, None), *(_row(each.outcome, each) for each in found)]
        yield from (*grid(header, rows), "", rule, "", *_lessons(found), "")


def _row(outcome: Outcome, effect: Effect | None) -> tuple[str, ...]:
    runs = outcome.runs
    score = Spread(tuple(final_score(run.rows) for run in runs)).text(
        runs[0].metric.short, unit=runs[0].metric.unit
    )
    times, traffic, points, words = "1", "1", "", ""
    if effect is not None:
        at = "" if effect.target is None else f" to {percent(effect.target)}"
        times = effect.times.text(ratio, "not reached", "x") + at
        traffic = effect.traffic.text(ratio, unit="x") if effect.traffic.reached else ""
        points = f" ({100 * (effect.points.mean or 0.0):+.1f} points)"
        words = ", ".join(effect.words)
    waited = percent(fmean(map(waiting, runs)))
    return (outcome.label, str(len(runs)), times, traffic, f"{score}{points}", waited, words)


def _lessons(found: Sequence[Effect]) -> Iterator[str]:
    """Which changes harm, which help, and which do nothing that the seeds would show."""
    told = {
        "Harm": [
            e for e in found if {"slower", "worse"} & set(e.words) and not {"faster", "better"} & set(e.words)
        ],
        "Help": [
            e for e in found if {"faster", "better"} & set(e.words) and not {"slower", "worse"} & set(e.words)
        ],
        "Are faster but less accurate": [e for e in found if {"faster", "worse"} <= set(e.words)],
        "Are more accurate but slower": [e for e in found if {"slower", "better"} <= set(e.words)],
        "Make no difference that these seeds show": [e for e in found if e.words == ["even"]],
    }
    for what, some in told.items():
        if some:
            yield f"- **{what}**: {listed([_named(each) for each in some])}."


def _named(effect: Effect) -> str:
    times, traffic = effect.times.mean, effect.traffic.mean
    if effect.same or times is None or traffic is None:
        return effect.outcome.label
    points = 100 * (effect.points.mean or 0.0)
    return f"{effect.outcome.label} ({times:.2f}x the time, {traffic:.2f}x the traffic, {points:+.1f} points)"
