"""What the runs of a study came to, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from heroes.report.measures import Evaluation, Spread, evaluations, reach, running_means
from heroes.report.metrics import Metric
from heroes.report.runs import RunData
from heroes.report.summary import trains_narrower, untrained
from heroes.report.tables import Table
from heroes.studies.kept import Key
from heroes.studies.plans import Plan


@dataclass(frozen=True)
class Outcome:
    """A row's runs that are there, of so many."""

    label: str
    runs: tuple[RunData, ...]
    wanted: int
    keys: tuple[Key, ...] = ()
    """of all its runs, kept or not"""


def table(plan: Plan, outcomes: Sequence[Outcome], variant: str = "") -> Table:
    """Virtual seconds and megabytes to every target, and what the model was at the end."""
    there = [run for outcome in outcomes for run in outcome.runs]
    metric = there[0].metric if there else Metric("accuracy", lower_is_better=False)
    targets = tuple(f"{metric.text(target)}: s / MB" for target in plan.targets)
    header = ("", "seeds", *targets, "last three", "by width", "waiting", "round")
    rows = tuple(_row(plan, outcome, metric) for outcome in outcomes)
    budget = "" if plan.budget is None else f", {plan.budget:g} virtual seconds"
    title = ", ".join(filter(None, [f"{plan.name}: {plan.experiment}{budget}", variant]))
    return Table(title, header, rows)


def _row(plan: Plan, outcome: Outcome, metric: Metric) -> tuple[str, ...]:
    count = f"{len(outcome.runs)} of {outcome.wanted}"
    if not outcome.runs:
        return (outcome.label, count, *("" for _ in range(len(plan.targets) + 4)))
    means = [running_means(evaluations(run.rows)) for run in outcome.runs]
    reached = tuple(_cost(means, target, metric) for target in plan.targets)
    last = Spread(tuple(found[-1].score if found else None for found in means))
    return (
        outcome.label,
        count,
        *reached,
        last.text(metric.text, missing="not tested"),
        _by_width(outcome.runs, metric),
        f"{fmean(waiting(run) for run in outcome.runs):.0%}",
        f"{fmean(run.rows[-1].seconds / len(run.rows) for run in outcome.runs):.1f} s",
    )


def _cost(means: Sequence[Sequence[Evaluation]], target: float, metric: Metric) -> str:
    hits = [reach(found, target, metric) for found in means]
    got = [hit for hit in hits if hit is not None]
    if not got:
        return "—"
    some = "" if len(got) == len(hits) else f" ({len(got)} of {len(hits)})"
    cost = (fmean(hit.seconds for hit in got), fmean(hit.megabytes for hit in got))
    return " / ".join(f"{mean:.0f}" if mean >= 9.95 else f"{mean:.1f}" for mean in cost) + some


def _by_width(runs: Sequence[RunData], metric: Metric) -> str:
    scores = [run.rows[-1].score_by_width for run in runs]
    widths = sorted(set.intersection(*(set(each) for each in scores)))
    without = set[int]().union(*(untrained(run.rows, trains_narrower(run.config)) for run in runs))
    means = {width: metric.text(fmean(each[width] for each in scores)) for width in widths}
    return " ".join("untrained" if width in without else mean for width, mean in means.items())


def waiting(run: RunData) -> float:
    """The share of a round that clients wait on average."""
    return fmean(row.waiting / row.duration if row.duration else 0.0 for row in run.rows)
