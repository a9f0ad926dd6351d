"""Several runs side by side: what each strategy spent to reach a target, and what one of them saved.

Pure functions on `RunData`. Means and deviations are over seeds. What was not reached is None and is said to
be; nothing is filled in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from heroes.errors import ConfigError, HeroesError, did_you_mean
from heroes.report.comparison import Comparison, Measure
from heroes.report.gains import gains
from heroes.report.measures import (
    Evaluation,
    Spread,
    chosen_targets,
    evaluations,
    mean_waiting,
    reach,
    round_marks,
    score_at,
)
from heroes.report.metrics import Metric
from heroes.report.runs import Group, RunData, group_runs, repeated
from heroes.report.summary import MEGABYTE, Summary

REFERENCE = "heroes"  # by default, where there are runs of it
Found = dict[int, list[Evaluation]]
COSTS: dict[str, tuple[str, Callable[[Evaluation], float]]] = {
    "seconds": ("s", lambda each: each.seconds),
    "traffic": ("MB", lambda each: each.megabytes),
    "rounds": ("rounds", lambda each: float(each.round)),
}


def compare(
    runs: Sequence[RunData],
    *,
    targets: Sequence[float] | None = None,
    times: Sequence[float] | None = None,
    traffic: Sequence[float] | None = None,
    smooth: int = 1,
    reference: str | None = None,
) -> Comparison:
    """Compare runs of one experiment.

    Targets are values of the main metric (accuracies from 0 to 1), times seconds of the runs' clock, traffic
    megabytes; round numbers are chosen where they are not given. A score counts as the mean of the last
    `smooth` evaluations. `reference` is the strategy whose savings are told: heroes if there, else the first.
    """
    _refuse(runs, targets, times, traffic, smooth)
    groups = group_runs(runs)
    used = [run for group in groups for run in group.runs]
    found = {id(run): evaluations(run.rows, smooth) for run in used}
    scores = [each.score for series in found.values() for each in series]
    marks = {
        "targets": _sorted(targets, chosen_targets(runs[0].metric, scores)),
        "times": _sorted(times, round_marks(min(run.rows[-1].seconds for run in used))),
        "traffic": _sorted(traffic, round_marks(min(run.rows[-1].traffic for run in used) / MEGABYTE)),
    }
    measures = [measure for group in groups for measure in _measures(group, found, marks)]
    saved, notes = gains(
        groups,
        _reference(groups, reference),
        marks["targets"],
        lambda group, name, target: _cost(group.runs, found, target, name),
    )
    said = [note for run in runs for note in run.notes]
    return Comparison(
        runs[0].task, tuple(groups), tuple(measures + saved), smooth, (*said, *repeated(runs, groups), *notes)
    )


def _refuse(
    runs: Sequence[RunData],
    targets: Sequence[float] | None,
    times: Sequence[float] | None,
    traffic: Sequence[float] | None,
    smooth: int,
) -> None:
    if not runs:
        raise HeroesError("there is nothing to compare: give at least one run folder")
    for what, of in (
        ("of different experiments", [run.task for run in runs]),
        ("by different clocks", [run.clock for run in runs]),
        ("that go by different metrics", [_described(run.metric) for run in runs]),
    ):
        labels: dict[str, list[str]] = {}
        for run, kind in zip(runs, of, strict=True):
            labels.setdefault(kind, []).append(run.label)
        if len(labels) > 1:
            said = "; ".join(f"{kind} ({', '.join(names)})" for kind, names in sorted(labels.items()))
            raise HeroesError(f"runs {what} cannot be compared: {said}")
    for target in targets or ():
        _refuse_target(target, runs[0].metric)
    for name, values in (("time", times), ("traffic", traffic)):
        for value in values or ():
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value:g}: it should be above 0")
    if smooth < 1:
        raise ConfigError(f"smooth is {smooth}: it should be 1 (no smoothing) or more evaluations")


def _described(metric: Metric) -> str:
    return f"{metric.name}, lower is better" if metric.lower_is_better else metric.name


def _refuse_target(target: float, metric: Metric) -> None:
    if metric.share and not 0 < target <= 1:
        raise ConfigError(
            f"target {metric.name} is {target:g}: it should be above 0 and at most 1, such as 0.8 for 80 %"
        )
    if not math.isfinite(target):
        raise ConfigError(f"target {metric.name} is {target:g}: it should be a finite number")


def _reference(groups: Sequence[Group], wanted: str | None) -> str:
    """The strategy that others are compared with."""
    there = list(dict.fromkeys(group.strategy for group in groups))
    if wanted is not None and wanted not in there:
        raise ConfigError(f"reference is {wanted!r}: {did_you_mean(wanted, there)}")
    return wanted or (REFERENCE if REFERENCE in there else there[0])


def _sorted(given: Sequence[float] | None, chosen: Sequence[float]) -> list[float]:
    return sorted(set(chosen if given is None else given))


def _measures(group: Group, found: Found, marks: dict[str, list[float]]) -> list[Measure]:
    """Everything about one group but its gains."""
    label, series = group.label, [(run, found[id(run)]) for run in group.runs]
    metric = group.runs[0].metric.name
    costs = [
        Measure(label, f"{name} to {metric}", unit, _cost(group.runs, found, target, name), target)
        for name, (unit, _) in COSTS.items()
        for target in marks["targets"]
    ]
    by_time = [
        Measure(
            label,
            f"{metric} at seconds",
            "",
            Spread(tuple(score_at(*each, seconds=limit) for each in series)),
            limit,
        )
        for limit in marks["times"]
    ]
    by_traffic = [
        Measure(
            label,
            f"{metric} at traffic",
            "",
            Spread(tuple(score_at(*each, megabytes=limit) for each in series)),
            limit,
        )
        for limit in marks["traffic"]
    ]
    return [*_whole(group, found), *costs, *by_time, *by_traffic, *_by_width(group), *_losses(group)]


def _whole(group: Group, found: Found) -> list[Measure]:
    """What the runs of a group came to in the end."""
    metric = group.runs[0].metric
    scores = [[each.score for each in found[id(run)]] for run in group.runs]
    ends = [run.rows[-1] for run in group.runs]
    values: dict[tuple[str, str], list[float | None]] = {
        (metric.label, ""): [series[-1] if series else None for series in scores],
        (f"best {metric.name}", ""): [metric.best(series) for series in scores],
        ("rounds", "rounds"): [end.round for end in ends],
        ("seconds", "s"): [end.seconds for end in ends],
        ("traffic", "MB"): [end.traffic / MEGABYTE for end in ends],
        ("waiting", "s"): [mean_waiting(run) for run in group.runs],
    }
    return [Measure(group.label, what, unit, Spread(tuple(each))) for (what, unit), each in values.items()]


def _losses(group: Group) -> list[Measure]:
    """How many updates of every run did not count, by cause, and the privacy spent, if any."""
    tables = [Summary.of(run.rows).missing for run in group.runs]
    causes = sorted({cause for table in tables for cause in table})
    lost = [
        Measure(
            group.label,
            "lost updates",
            "updates",
            Spread(tuple(float(table.get(cause, 0)) for table in tables)),
            against=cause,
        )
        for cause in causes
    ]
    spent = Spread(tuple(run.rows[-1].epsilon for run in group.runs))
    return [*lost, *([Measure(group.label, "epsilon", "", spent)] if spent.reached else [])]


def _by_width(group: Group) -> list[Measure]:
    tables = [run.rows[-1].score_by_width for run in group.runs]
    widths = sorted({width for table in tables for width in table})
    return [
        Measure(
            group.label,
            f"{group.runs[0].metric.name} at width",
            "",
            Spread(tuple(table.get(width) for table in tables)),
            float(width),
        )
        for width in widths
    ]


def _cost(runs: Sequence[RunData], found: Found, target: float, name: str) -> Spread:
    reached = [reach(found[id(run)], target, run.metric) for run in runs]
    return Spread(tuple(None if each is None else COSTS[name][1](each) for each in reached))
