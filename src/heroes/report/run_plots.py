"""Figures that look inside one run. Each function returns a figure, or None if it would be empty."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heroes.errors import printable
from heroes.messages import ClientRecord, Floats, RoundRecord
from heroes.report.runs import RunData
from heroes.report.style import (
    COMPUTE,
    LONGEST_TITLE,
    PAUSE,
    START,
    TRANSFER,
    WAITING,
    dress,
    legend,
    new_figure,
    words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLIENTS = 40  # in a timeline
MOST_DEVICES = 12
LONGEST_DEVICE = 30  # characters of its name
READABLE_CELLS = 8  # a grid with more blocks on a side is drawn without numbers


def round_timeline(run: RunData, number: int | None = None) -> Figure | None:
    """How long each client of a round computed, sent and waited; by default of the last round.

    If there are many clients, only the fastest and the slowest are shown.
    """
    row = next((row for row in reversed(run.rows) if row.clients and number in (None, row.round)), None)
    if row is None:
        return None
    clients, which = _drawn(row.clients)
    figure, (axes,) = new_figure(1.6 + 0.24 * len(clients))
    places, start = np.arange(len(clients)), np.zeros(len(clients))
    for key, shade, hatched in (
        ("start_seconds", START, ""),
        ("compute_seconds", COMPUTE, ""),
        ("transfer_seconds", TRANSFER, ""),
        ("pause_seconds", PAUSE, ""),
        ("waiting", WAITING, "////"),
    ):
        length = np.array([getattr(each, key) for each in clients], float)
        if key in ("start_seconds", "pause_seconds") and not length.any():  # only deployed clients have them
            continue
        axes.barh(
            places,
            length,
            left=start,
            color=shade,
            hatch=hatched,
            edgecolor="white",
            label=key.removesuffix("_seconds"),
        )
        start += length
    axes.set_yticks(places, [words(_described(each)) for each in clients])
    axes.set_ylim(-0.6, len(clients) - 0.4)
    if len(clients) < len(row.clients):
        axes.axhline(len(clients) / 2 - 0.5, color="black", linestyle=":", linewidth=1)
    dress(axes, f"Round {row.round} of {_called(run)}", f"{run.clock} time in the round (s)", which)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelsize=8)
    legend(figure, axes)
    return figure


def block_counters(run: RunData, snapshots: int = 4) -> Figure | None:
    """How many local steps each block of the P x P grid was trained for, after a few of the rounds."""
    grids = [(row.round, grid) for row in run.rows if (grid := counted_blocks(row)) is not None]
    if not grids:
        return None
    chosen = [
        grids[index]
        for index in sorted({round(part * (len(grids) - 1)) for part in np.linspace(0, 1, snapshots)})
    ]
    columns = min(2, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure, axes = new_figure(0.6 + 2.5 * rows, rows, columns)
    relative = [grid / grid.mean() if grid.mean() > 0 else np.ones_like(grid) for _, grid in chosen]
    largest = max(0.05, *(float(np.abs(each - 1).max()) for each in relative))
    for place, (number, grid) in zip(axes, chosen, strict=False):
        _heat(place, number, grid, largest)
    for empty in axes[len(chosen) :]:
        empty.remove()
    shown = axes[: len(chosen)]
    figure.colorbar(shown[0].images[0], ax=shown, label="counter relative to the round's mean", shrink=0.8)
    figure.suptitle(words(f"Local steps of every block, {_called(run)}", LONGEST_TITLE), fontsize=11)
    return figure


def widths_and_steps(run: RunData) -> Figure | None:
    """Which widths and how many local steps tau each class of device was given over the run."""
    entries = [entry for row in run.rows for entry in row.clients]
    if not entries:
        return None
    devices = _devices(entries)
    figure, (left, right) = new_figure(1.9 + 0.5 * len(devices), rows=2)
    _width_shares(left, devices)
    names = list(devices)[::-1]
    boxes = right.bxp(
        [_spread([entry.tau for entry in devices[name]]) for name in names],
        orientation="horizontal",
        widths=0.6,
        patch_artist=True,
    )
    for box in boxes["boxes"]:
        box.set_facecolor(WAITING)
    for middle in boxes["medians"]:
        middle.set_color("black")
    right.set_yticks(range(1, len(names) + 1), [words(name, LONGEST_DEVICE) for name in names])
    dress(right, "Local steps", "τ: local steps in a round", "device class")
    right.grid(visible=False, axis="y")
    right.set_xlim(left=0)
    figure.suptitle(words(f"What devices were given, {_called(run)}", LONGEST_TITLE), fontsize=11)
    return figure


def _drawn(clients: Sequence[ClientRecord]) -> tuple[list[ClientRecord], str]:
    """The clients to draw, from the bottom up, and the label of their axis.

    They are sorted by device. If there are too many, they are sorted by time, and the middle is left out.
    """
    if len(clients) <= MOST_CLIENTS:
        return sorted(clients, key=lambda each: (each.device, each.client), reverse=True), "client"
    ordered = sorted(clients, key=_busy)
    shown = [*ordered[: MOST_CLIENTS // 2], *ordered[-MOST_CLIENTS // 2 :]]
    return shown, f"{len(shown)} of {len(clients):,} clients shown: the fastest and the slowest"


def _busy(client: ClientRecord) -> float:
    """Seconds until its update was in."""
    return client.start_seconds + client.compute_seconds + client.transfer_seconds + client.pause_seconds


def _described(client: ClientRecord) -> str:
    device = printable(client.device, LONGEST_DEVICE)
    return f"{client.client} · {device} · width {client.width} · τ {client.tau}"


def _spread(taus: Sequence[int]) -> dict[str, Any]:
    """The statistics for one box of a box plot; equal outliers become one dot."""
    from matplotlib.cbook import boxplot_stats

    (found,) = boxplot_stats(np.array(taus, float))
    return {**found, "fliers": np.unique(found["fliers"])}


def _called(run: RunData) -> str:
    return f"{printable(run.strategy, 20)}, seed {run.seed}"


def counted_blocks(row: RoundRecord) -> Floats | None:
    """The block counters of a round as a square; None if the strategy has none."""
    counters = row.facts.get("counters")
    if not isinstance(counters, (list, tuple)) or not counters:
        return None
    if not all(isinstance(each, (int, float)) for each in counters):
        return None
    side = math.isqrt(len(counters))
    return np.array(counters, float).reshape(side, side) if side**2 == len(counters) else None


def _heat(axes: Axes, number: int, grid: Floats, largest: float) -> None:
    mean = grid.mean() if grid.mean() > 0 else 1.0
    relative = grid / mean
    axes.imshow(relative, cmap="cividis", vmin=1 - largest, vmax=1 + largest)
    side = len(grid)
    if side <= READABLE_CELLS:
        for (line, column), value in np.ndenumerate(grid):
            shade = "black" if relative[line, column] > 1 else "white"
            axes.text(column, line, f"{value:,.0f}", ha="center", va="center", color=shade, fontsize=8)
        axes.set_xticks(range(side))
        axes.set_yticks(range(side))
    dress(axes, f"round {number}", "block column", "block row", grid=False)


def _devices(entries: Sequence[ClientRecord]) -> dict[str, list[ClientRecord]]:
    """The assignments by class of device; if there are many classes, the rarest are put under "others"."""
    counts = Counter(entry.device for entry in entries)
    often = {
        name
        for name, _ in counts.most_common(MOST_DEVICES if len(counts) <= MOST_DEVICES else MOST_DEVICES - 1)
    }
    classes: dict[str, list[ClientRecord]] = {name: [] for name in sorted(often)}
    for entry in entries:
        classes.setdefault(entry.device if entry.device in often else "others", []).append(entry)
    return classes


def _width_shares(axes: Axes, devices: dict[str, list[ClientRecord]]) -> None:
    import matplotlib

    widths = sorted({entry.width for entries in devices.values() for entry in entries})
    shades = matplotlib.colormaps["cividis"](np.linspace(0, 0.95, len(widths)))
    names = list(devices)[::-1]
    start = np.zeros(len(names))
    for width, shade in zip(widths, shades, strict=True):
        share = np.array([100 * np.mean([entry.width == width for entry in devices[name]]) for name in names])
        axes.barh(
            range(len(names)), share, left=start, color=shade, edgecolor="white", label=f"width {width}"
        )
        start += share
    axes.set_yticks(range(len(names)), [words(name, LONGEST_DEVICE) for name in names])
    dress(axes, "Widths", "share of assignments (%)", "device class")
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 100)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
