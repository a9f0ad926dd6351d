"""Figures that compare groups of runs. Each function returns a figure, or None if it would be empty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from heroes.messages import Floats
from heroes.report.comparison import Comparison
from heroes.report.measures import WIDE, Evaluation, Spread, evaluations, score_at
from heroes.report.metrics import Metric
from heroes.report.runs import Group, RunData, group_runs, series_along
from heroes.report.style import colour, dashes, dress, hatch, legend, marker, new_figure, whole_numbers, words
from heroes.report.summary import final_score, spent_joules

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEGABYTES = "traffic, both ways (MB)"
JOULES = "energy of all clients, estimated (J)"
LEVELS = {  # settings that say how skewed the data is: label, and the partitions that each applies to
    "data.gamma": ("Γ: share of a client's main class (%)", ("gamma", "gamma_all", "by_device")),
    "data.phi": ("φ: classes a client lacks", ("missing",)),
    "data.alpha": ("α: Dirichlet concentration (smaller is less even)", ("dirichlet",)),  # noqa: RUF001
}
Curve = tuple[Floats, Floats]
_SHORT = 0.12  # of the tallest bar: what is below can hardly be read off the axis


def seconds_of(groups: Sequence[Group]) -> str:
    """The label of a time axis; runs that are compared have the same clock."""
    clocks = [group.runs[0].clock for group in groups]
    return f"{clocks[0]} time (s)" if clocks else "time (s)"


def score_against_time(groups: Sequence[Group], about: str = "") -> Figure | None:
    """The main metric over time: the mean over seeds, its deviation shaded, and each run as a thin line."""
    return _scores(groups, "time", seconds_of(groups), lambda each: each.seconds, about)


def score_against_traffic(groups: Sequence[Group]) -> Figure | None:
    """The main metric over the bytes sent both ways, drawn in the same way."""
    return _scores(groups, "traffic", MEGABYTES, lambda each: each.megabytes)


def score_against_energy(groups: Sequence[Group]) -> Figure | None:
    """The main metric over what the clients used, drawn in the same way; runs without it are left out."""
    known = [
        replace(group, runs=tuple(run for run in group.runs if spent_joules(run.rows)[-1] is not None))
        for group in groups
    ]
    return _scores([g for g in known if g.runs], "energy", JOULES, lambda each: each.joules or 0.0)


def waiting_per_round(groups: Sequence[Group]) -> Figure | None:
    """How long the clients of each round waited for the slowest one, on average."""

    def curve(run: RunData) -> Curve:
        return np.array([row.round for row in run.rows], float), np.array(
            [row.waiting for row in run.rows], float
        )

    curves = [(group, [curve(run) for run in group.runs]) for group in groups]
    if not curves:
        return None
    figure, (axes,) = new_figure()
    for group, lines in curves:
        _draw(axes, group, lines)
    dress(axes, "Mean waiting in each round", "round", "mean waiting of a client (s)")
    whole_numbers(axes.xaxis)
    axes.set_ylim(bottom=0)
    legend(figure, axes)
    return figure


def resources_to_targets(found: Comparison) -> Figure | None:
    """Seconds, traffic and, if it is known, energy to each target.

    Where a bar is missing, "not reached" stands in its place; one too short to be seen has its value above.
    """
    metric, targets = found.metric, found.targets
    if not targets:
        return None
    drawn = {"seconds": ("Time", seconds_of(found.groups)), "traffic": ("Traffic", MEGABYTES)}
    if found.places(f"energy to {metric.name}"):
        drawn["energy"] = ("Energy", JOULES)
    figure, every = new_figure(2.8 * len(drawn), rows=len(drawn))
    for axes, (what, (title, unit)) in zip(every, drawn.items(), strict=True):
        _bars_of_groups(axes, found, f"{what} to {metric.name}")
        axes.set_xticks(range(len(targets)), [metric.target(target) for target in targets])
        axes.set_xlim(-0.5, len(targets) - 0.5)
        dress(axes, f"{title} to reach a target {metric.name}", f"target {metric.name}", unit)
        axes.grid(visible=False, axis="x")
        axes.set_ylim(top=1.25 * axes.get_ylim()[1])  # room for what is said above the bars
    legend(figure, every[0])
    return figure


def _bars_of_groups(axes: Axes, found: Comparison, what: str) -> None:
    """A measure at every target, the groups side by side."""
    width = 0.8 / len(found.groups)
    taken = {g.label: [found.find(g.label, what, target) for target in found.targets] for g in found.groups}
    means = [each.mean for spreads in taken.values() for each in spreads if each and each.mean is not None]
    short = _SHORT * max(means, default=0.0)
    for place, group in enumerate(found.groups):
        shift = (place - (len(found.groups) - 1) / 2) * width
        _bars(axes, group, taken[group.label], shift, width, short)


def score_against_skew(runs: Sequence[RunData], at_seconds: float | None = None) -> Figure | None:
    """The main metric against how unevenly the data is shared out, at the end or after some time."""
    key = next((key for key in LEVELS if len({_level(run, key) for run in runs} - {None}) > 1), None)
    if key is None:
        return None
    figure, (axes,) = new_figure()
    for line in series_along([run for run in runs if _level(run, key) is not None], key):
        _skew_line(axes, line, key, at_seconds)
    when = "at the end" if (after := at_seconds or _all_ended_after(runs)) is None else _after(after, runs[0])
    metric = runs[0].metric
    dress(axes, f"Test {metric.name} {when} against skew of the data", LEVELS[key][0], metric.axis)
    if key == "data.alpha":
        axes.set_xscale("log")
    legend(figure, axes)
    return figure


def _after(seconds: float, run: RunData) -> str:
    return f"after {seconds:g} {run.clock} s"


def _all_ended_after(runs: Sequence[RunData]) -> float | None:
    """The budget by which all runs ended, if it was the same."""
    budgets = {run.settings.get("federation.time_budget") for run in runs}
    if len(budgets) > 1 or any(run.rows[-1].stopped != "time budget" for run in runs):
        return None
    (budget,) = budgets
    return budget if isinstance(budget, float) else None


def _level(run: RunData, key: str) -> float | None:
    """How skewed a run's data is by this setting; None if the setting does not apply to its partition."""
    settings = run.settings
    value = settings.get(key)
    return (
        float(value)
        if isinstance(value, (int, float)) and settings.get("data.partition") in LEVELS[key][1]
        else None
    )


def _skew_line(axes: Axes, line: Group, key: str, at_seconds: float | None) -> None:
    points: list[tuple[float, Spread]] = []
    for group in group_runs(line.runs):
        scores = [_final(run, at_seconds) for run in group.runs]
        level = _level(group.runs[0], key)
        if level is not None and any(each is not None for each in scores):
            points.append((level, Spread(tuple(scores))))
    points.sort(key=lambda point: point[0])
    scale = line.runs[0].metric.scale
    axes.errorbar(
        [level for level, _ in points],
        [scale * (spread.mean or 0) for _, spread in points],
        [np.nan if spread.std is None else scale * spread.std for _, spread in points],
        label=words(line.label),
        color=colour(line.strategy),
        linestyle=dashes(line),
        marker=marker(line.strategy),
        capsize=3,
    )


def _final(run: RunData, at_seconds: float | None) -> float | None:
    if at_seconds is not None:
        return score_at(run, evaluations(run.rows), seconds=at_seconds)
    return final_score(run.rows)


def _bars(
    axes: Axes, group: Group, taken: Sequence[Spread | None], shift: float, width: float, short: float
) -> None:
    """The bars of one group; above them, how many of its runs reached the target, and what is too short."""
    spreads = [each or Spread(()) for each in taken]
    look: dict[str, Any] = {
        "color": colour(group.strategy),
        "hatch": hatch(group),
        "edgecolor": "white",
        "linewidth": 0.5,
    }
    places = [place + shift for place in range(len(spreads))]
    axes.bar(places, [spread.mean or 0 for spread in spreads], width * 0.92, label=words(group.label), **look)
    for place, spread, known in zip(places, spreads, taken, strict=True):
        if spread.mean is not None and spread.std is not None:
            axes.errorbar(place, spread.mean, spread.std, color="#222222", capsize=2, linewidth=1)
        said = "not known" if known is None else _unreached(spread)
        if spread.mean is not None and spread.mean < short:
            value = f"{spread.mean:,.0f}" if spread.mean >= 10 else f"{spread.mean:.2g}"
            said = ", ".join(filter(None, (value, said)))
        if said:
            height = (spread.mean or 0) + (spread.std or 0)
            axes.annotate(
                said,
                (place, height),
                (0, 3),
                textcoords="offset points",
                rotation=90,
                ha="center",
                va="bottom",
                fontsize=7,
            )


def _unreached(spread: Spread) -> str:
    if spread.mean is None:
        return "not reached"
    return (
        "" if len(spread.reached) == len(spread.values) else f"{len(spread.reached)} of {len(spread.values)}"
    )


def _scores(
    groups: Sequence[Group],
    against: str,
    x_label: str,
    x: Callable[[Evaluation], float],
    about: str = "",
) -> Figure | None:
    def curve(run: RunData) -> Curve:
        found = evaluations(run.rows)
        return np.array([x(each) for each in found], float), np.array(
            [run.metric.scale * each.score for each in found], float
        )

    curves = [(group, [line for line in map(curve, group.runs) if len(line[0])]) for group in groups]
    if not any(lines for _, lines in curves):
        return None
    figure, (axes,) = new_figure()
    for group, lines in curves:
        if lines:
            _draw(axes, group, lines)
    metric = groups[0].runs[0].metric
    dress(axes, about or f"Test {metric.name} against {against}", x_label, metric.axis)
    axes.set_xlim(left=0)
    _fit(axes, metric, np.concatenate([y for _, lines in curves for _, y in lines]))
    legend(figure, axes)
    return figure


def _fit(axes: Axes, metric: Metric, values: Floats) -> None:
    """Choose where the axis of the scores begins and ends.

    Shares go from one multiple of ten to another, at most 100 %. Other values set their own limits; the axis
    begins at 0 if that is near, and is logarithmic if they lie far apart.
    """
    low, high = float(values.min()), float(values.max())
    if metric.share:
        top = 10.0 * math.ceil((high + 5) / 10)
        axes.set_ylim(max(0.0, 10 * math.floor(low / 10)), max(min(100.0, top), high))
    elif 0 < low < high / WIDE:
        axes.set_yscale("log")
    elif 0 <= low < high / 2:
        axes.set_ylim(bottom=0)


def _draw(axes: Axes, group: Group, curves: Sequence[Curve]) -> None:
    """Draw one run as it is; several as their mean, shaded by one deviation, with thin lines for the runs."""
    look: dict[str, Any] = {"color": colour(group.strategy), "linestyle": dashes(group)}
    if len(curves) == 1:
        (x, y), every = curves[0], max(1, len(curves[0][0]) // 10)
        axes.plot(
            x,
            y,
            label=words(group.label),
            marker=marker(group.strategy),
            markersize=4,
            markevery=every,
            **look,
        )
        return
    for x, y in curves:
        axes.plot(x, y, linewidth=0.7, alpha=0.35, **look)
    grid, mean, deviation = _mean_curve(curves)
    axes.fill_between(grid, mean - deviation, mean + deviation, color=look["color"], alpha=0.18, linewidth=0)
    axes.plot(
        grid,
        mean,
        label=words(group.label),
        marker=marker(group.strategy),
        markersize=4,
        markevery=max(1, len(grid) // 8),
        **look,
    )


def _mean_curve(curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats]:
    """Mean and sample deviation at the points of all curves, over the stretch that all of them cover."""
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    places = np.unique(np.concatenate([x for x, _ in curves]))
    grid = places[(places >= start) & (places <= end)]
    heights = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, heights.mean(0), heights.std(0, ddof=1)
