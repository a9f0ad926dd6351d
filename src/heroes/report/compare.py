"""Compares runs: what each strategy took to reach a target, and how many times better one of them was.

Pure functions of `RunData`. Means and deviations are over seeds. A target that was not reached is None, and
the tables say so; nothing is filled in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from heroes.errors import ConfigError, HeroesError, did_you_mean
from heroes.messages import TESTS
from heroes.report.comparison import STUDY, Comparison, Measure
from heroes.report.gains import gains
from heroes.report.measures import (
    Evaluation,
    Spread,
    chosen_targets,
    evaluations,
    mean_waiting,
    reach,
    round_marks,
    running_means,
    score_at,
)
from heroes.report.metrics import Metric
from heroes.report.runs import Group, RunData, group_runs, repeated
from heroes.report.summary import MEGABYTE, Summary, final_score, spent_joules, trains_narrower, untrained

REFERENCE = "heroes"  # by default, if there are runs of it
Found = dict[int, list[Evaluation]]  # by the id of the run
COSTS: dict[str, tuple[str, Callable[[Evaluation], float | None]]] = {
    "seconds": ("s", lambda each: each.seconds),
    "traffic": ("MB", lambda each: each.megabytes),
    "energy": ("J", lambda each: each.joules),
    "rounds": ("rounds", lambda each: float(each.round)),
}


def compare(
    runs: Sequence[RunData],
    *,
    targets: Sequence[float] | None = None,
    times: Sequence[float] | None = None,
    traffic: Sequence[float] | None = None,
    reference: str | None = None,
) -> Comparison:
    """Compare runs of one experiment.

    Args:
        runs: at least one, of any strategies and seeds.
        targets: values of the main metric to reach; accuracies are from 0 to 1.
        times: seconds of the runs' clock after which to tell the score.
        traffic: the same in megabytes. Round numbers are chosen for whatever is not given.
        reference: the strategy that the others are compared with; heroes if there are runs of it, else the
            first.
    """
    _refuse(runs, targets, times, traffic)
    groups = group_runs(runs)
    used = [run for group in groups for run in group.runs]
    found = {id(run): evaluations(run.rows) for run in used}
    means = {number: running_means(series) for number, series in found.items()}
    scores = [each.score for series in means.values() for each in series]
    marks = {
        "targets": _sorted(targets, chosen_targets(runs[0].metric, scores)),
        "times": _sorted(times, round_marks(min(run.rows[-1].seconds for run in used))),
        "traffic": _sorted(traffic, round_marks(min(run.rows[-1].traffic for run in used) / MEGABYTE)),
    }
    measures = [measure for group in groups for measure in _measures(group, found, means, marks)]
    saved, notes = gains(
        groups,
        reference_among((group.strategy for group in groups), reference),
        marks["targets"],
        lambda group, name, target: _cost(group.runs, means, target, name),
    )
    said = [note for run in runs for note in run.notes]
    said += [*repeated(runs, groups), *_too_few(used, found), *notes]
    return Comparison(runs[0].experiment, tuple(groups), tuple(measures + saved), tuple(said))


def _too_few(runs: Sequence[RunData], found: Found) -> list[str]:
    """A note for every run that cannot reach a target, since it has too few tests for a mean."""
    tests = [(run.label, len(found[id(run)])) for run in runs if len(found[id(run)]) < TESTS]
    return [
        f"{label!r} was tested {'once' if count == 1 else f'{count} times'}; a target counts by the mean of "
        f"{TESTS} tests, so this run reaches none"
        for label, count in tests
    ]


def _refuse(
    runs: Sequence[RunData],
    targets: Sequence[float] | None,
    times: Sequence[float] | None,
    traffic: Sequence[float] | None,
) -> None:
    """Refuse what cannot be compared, and values that make no sense."""
    if not runs:
        raise HeroesError("there is nothing to compare: give at least one run folder")
    for what, of in (
        ("of different experiments", [run.experiment for run in runs]),
        ("with different clocks", [run.clock for run in runs]),
        ("with different main metrics", [_described(run.metric) for run in runs]),
    ):
        labels: dict[str, list[str]] = {}
        for run, kind in zip(runs, of, strict=True):
            labels.setdefault(kind, []).append(run.label)
        if len(labels) > 1:
            said = "; ".join(f"{kind} ({', '.join(names)})" for kind, names in sorted(labels.items()))
            raise HeroesError(f"runs {what} cannot be compared: {said}")
    refuse_targets(targets or (), runs[0].metric)
    for name, values in (("time", times), ("traffic", traffic)):
        for value in values or ():
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value:g}: it should be above 0")


def _described(metric: Metric) -> str:
    return f"{metric.name}, lower is better" if metric.lower_is_better else metric.name


def refuse_targets(targets: Iterable[float], metric: Metric) -> None:
    """Raise an error for a score that no run can reach by this metric."""
    for target in targets:
        if metric.share and not 0 < target <= 1:
            raise ConfigError(
                f"target {metric.name} is {target:g}: it should be above 0 and at most 1, such as 0.8 for "
                "80 %"
            )
        if not math.isfinite(target):
            raise ConfigError(f"target {metric.name} is {target:g}: it should be a finite number")


def reference_among(strategies: Iterable[str], wanted: str | None) -> str:
    """The strategy that others are compared with: the wanted one, which must be there; heroes; the first."""
    there = list(dict.fromkeys(strategies))
    if wanted is not None and wanted not in there:
        raise ConfigError(f"reference is {wanted!r}: {did_you_mean(wanted, there)}")
    return wanted or (REFERENCE if REFERENCE in there else there[0])


def _sorted(given: Sequence[float] | None, chosen: Sequence[float]) -> list[float]:
    return sorted(set(chosen if given is None else given))


def _measures(group: Group, found: Found, means: Found, marks: dict[str, list[float]]) -> list[Measure]:
    """Everything about one group except its ratios to others."""
    label, series = group.label, [(run, found[id(run)]) for run in group.runs]
    metric = group.runs[0].metric.name
    costs = [
        Measure(label, f"{name} to {metric}", unit, spread, target)
        for name, (unit, _) in COSTS.items()
        for target in marks["targets"]
        if (spread := _cost(group.runs, means, target, name)) is not None
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
        (metric.label, ""): [final_score(run.rows) for run in group.runs],
        (f"best {metric.name}", ""): [metric.best(series) for series in scores],
        ("rounds", "rounds"): [end.round for end in ends],
        ("seconds", "s"): [end.seconds for end in ends],
        ("traffic", "MB"): [end.traffic / MEGABYTE for end in ends],
        ("waiting", "s"): [mean_waiting(run) for run in group.runs],
    }
    joules = [spent_joules(run.rows)[-1] for run in group.runs]
    if any(each is not None for each in joules):
        values["energy", "J"] = joules
    return [Measure(group.label, what, unit, Spread(tuple(each))) for (what, unit), each in values.items()]


def _losses(group: Group) -> list[Measure]:
    """How many updates of each run did not count, by cause, and the privacy that was spent, if any."""
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
    ends = [run.rows[-1] for run in group.runs]
    spent = Spread(tuple(end.epsilon for end in ends))
    unit = STUDY if any(end.noise != "system" for end in ends) else ""
    return [*lost, *([Measure(group.label, "epsilon", unit, spent)] if spent.reached else [])]


def _by_width(group: Group) -> list[Measure]:
    """The scores of the final model at every width; those of widths that no client trained are kept apart."""
    tables = [run.rows[-1].score_by_width for run in group.runs]
    without = [untrained(run.rows, trains_narrower(run.config)) for run in group.runs]
    measures = []
    for width in sorted({width for table in tables for width in table}):
        for kind, wanted in (("width", False), ("untrained width", True)):
            pairs = zip(tables, without, strict=True)
            values = tuple(table.get(width) if (width in none) == wanted else None for table, none in pairs)
            if not wanted or any(value is not None for value in values):
                what = f"{group.runs[0].metric.name} at {kind}"
                measures.append(Measure(group.label, what, "", Spread(values), float(width)))
    return measures


def _cost(runs: Sequence[RunData], means: Found, target: float, name: str) -> Spread | None:
    """What each run took to reach a target; None if that is not known of all of them."""
    cost = COSTS[name][1]
    if any(cost(each) is None for run in runs for each in means[id(run)]):
        return None
    reached = [reach(means[id(run)], target, run.metric) for run in runs]
    return Spread(tuple(None if each is None else cost(each) for each in reached))
