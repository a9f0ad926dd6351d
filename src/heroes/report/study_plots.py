"""Figures for many settings side by side, and for the clients of a round in the order of their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heroes.report.measures import Spread
from heroes.report.runs import RunData
from heroes.report.style import DASHES, colour, dress, legend, marker, new_figure, whole_numbers, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Dots:
    """A row of a dot plot: its name, its strategy, and a number for each panel."""

    label: str
    strategy: str
    spreads: tuple[Spread, ...]


def dot_plot(
    rows: Sequence[Dots], panels: Sequence[str], scales: Sequence[float], title: str = ""
) -> Figure | None:
    """The mean and deviation of every row, one panel beside the other, the first row on top.

    A line goes through the first row's means; a hollow dot says that not all runs of a row have a number.
    """
    if not rows:
        return None
    figure, both = new_figure(1.0 + 0.27 * len(rows), columns=len(panels))
    names = [words(row.label, 34) for row in rows]
    for place, (axes, panel, scale) in enumerate(zip(both, panels, scales, strict=True)):
        if (first := rows[0].spreads[place].mean) is not None:
            axes.axvline(scale * first, color="#999999", linewidth=0.8, linestyle=":")
        for height, row in enumerate(rows):
            _dot(axes, row, row.spreads[place], height, scale)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), names if place == 0 else [""] * len(rows), fontsize=8)
        dress(axes, title if place == 0 else "", panel, "")
        axes.tick_params(axis="x", labelsize=8)
        axes.margins(x=0.12)
    return figure


def _dot(axes: Axes, row: Dots, spread: Spread, height: int, scale: float) -> None:
    if spread.mean is None:
        axes.text(0.02, height, "not reached", transform=axes.get_yaxis_transform(), fontsize=7, va="center")
        return
    whole = len(spread.reached) == len(spread.values)
    look: dict[str, Any] = {
        "color": colour(row.strategy),
        "marker": marker(row.strategy),
        "fillstyle": "full" if whole else "none",
    }
    deviation = None if spread.std is None else scale * spread.std
    axes.errorbar(scale * spread.mean, height, xerr=deviation, capsize=2, markersize=5, **look)


def times_of_a_round(run: RunData) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """How long the clients of each round took, fastest first: one line for each full round."""
    rounds = [
        sorted(each.compute_seconds + each.transfer_seconds for each in row.clients) for row in run.rows
    ]
    most = max((len(times) for times in rounds), default=0)
    full = [times for times in rounds if len(times) == most and most]
    return np.array(full, float).reshape(len(full), most)


def ranked_times(runs: Mapping[str, Sequence[RunData]]) -> Figure | None:
    """How long the fastest to the slowest client of a round took, of what the slowest did: means over rounds,
    deviation shaded.
    """
    figure, (axes,) = new_figure()
    styles: dict[str, int] = {}
    for label, members in runs.items():
        tables = [table for run in members if len(table := times_of_a_round(run))]
        if not tables:
            continue
        seconds, strategy = np.concatenate(tables), members[0].strategy
        times = 100 * seconds / seconds[:, -1:]
        ranks, mean, deviation = np.arange(1, times.shape[1] + 1), times.mean(0), times.std(0)
        styles[strategy] = styles.get(strategy, -1) + 1
        look: dict[str, Any] = {
            "color": colour(strategy),
            "linestyle": DASHES[styles[strategy] % len(DASHES)],
        }
        axes.plot(
            ranks,
            mean,
            marker=marker(strategy),
            markersize=4,
            label=words(f"{label}: {seconds[:, -1].mean():.1f} s"),
            **look,
        )
        axes.fill_between(
            ranks, mean - deviation, mean + deviation, color=look["color"], alpha=0.15, linewidth=0
        )
    if not styles:
        return None
    dress(
        axes,
        "How long the clients of a round take (legend: the slowest)",
        "client of a round, fastest first",
        "of the slowest one's time (%)",
    )
    whole_numbers(axes.xaxis)
    axes.set_ylim(bottom=0)
    legend(figure, axes)
    return figure
