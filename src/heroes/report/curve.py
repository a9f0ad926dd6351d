"""A small accuracy curve for the terminal, as plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heroes.report.measures import Evaluation, evaluations
from heroes.report.records import Row

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # braille: two columns of four dots, from the top
BRAILLE = 0x2800
LABEL = 6  # room for "100 % "


def accuracy_curve(
    rows: Sequence[Row], width: int = 60, height: int = 8, *, ascii_only: bool = False
) -> list[str]:
    """Accuracy over time in `height` lines of at most `width` characters, and two lines for the time axis.

    No lines where nothing was evaluated. `ascii_only` is for terminals that have no braille.
    """
    found = evaluations(rows)
    if not found:
        return []
    columns, lines = max(8, width - LABEL - 2), max(2, height)
    low, high = _range(found)
    across, down = (1, 1) if ascii_only else (2, 4)
    heights = _heights(found, columns * across, low, high, lines * down)
    picture = _letters(heights, columns, lines) if ascii_only else _braille(heights, columns, lines)
    edge, corner, floor = ("|", "+", "-") if ascii_only else ("┤", "└", "─")
    labels = _labels(low, high, lines)
    body = [f"{labels.get(line, ''):>{LABEL}}{edge}{text}".rstrip() for line, text in enumerate(picture)]
    end = f"{found[-1].seconds:,.1f} s"
    title = f"{rows[-1].get('clock', 'virtual')} time"
    axis = f"0 s{title.center(max(len(title) + 2, columns - 3 - len(end)))}{end}"
    return [*body, " " * LABEL + corner + floor * columns, " " * (LABEL + 1) + axis]


def _range(found: Sequence[Evaluation]) -> tuple[float, float]:
    """Whole tens of percent around the accuracies."""
    low = math.floor(10 * min(each.accuracy for each in found) + 1e-9) / 10
    high = math.ceil(10 * max(each.accuracy for each in found) - 1e-9) / 10
    return low, max(high, low + 0.1)


def _heights(
    found: Sequence[Evaluation], columns: int, low: float, high: float, steps: int
) -> list[int | None]:
    """For every column the height of the curve in steps from the bottom; None before the first evaluation."""
    end = found[-1].seconds
    heights: list[int | None] = []
    for column in range(columns):
        time = end * (column + 1) / columns if end > 0 else 0.0
        before = [each for each in found if each.seconds <= time * (1 + 1e-12)]
        part = (before[-1].accuracy - low) / (high - low) if before else None
        heights.append(None if part is None else min(steps - 1, math.floor(part * steps)))
    return heights


def _braille(heights: Sequence[int | None], columns: int, lines: int) -> list[str]:
    cells = [[BRAILLE] * columns for _ in range(lines)]
    previous: int | None = None
    for place, height in enumerate(heights):
        if height is None:
            continue
        start = height if previous is None else previous
        for step in range(min(start, height), max(start, height) + 1):
            line, dot = divmod(4 * lines - 1 - step, 4)
            cells[line][place // 2] |= DOTS[place % 2][dot]
        previous = height
    return ["".join(map(chr, line)).replace(chr(BRAILLE), " ") for line in cells]


def _letters(heights: Sequence[int | None], columns: int, lines: int) -> list[str]:
    cells = [[" "] * columns for _ in range(lines)]
    for place, height in enumerate(heights):
        if height is not None:
            cells[lines - 1 - height][place] = "*"
    return ["".join(line) for line in cells]


def _labels(low: float, high: float, lines: int) -> dict[int, str]:
    """The accuracy at the top and at the bottom."""
    return {0: f"{100 * high:.0f} % ", lines - 1: f"{100 * low:.0f} % "}
