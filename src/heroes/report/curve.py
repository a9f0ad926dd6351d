"""A small curve of the test scores, as plain text for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heroes.messages import RoundRecord
from heroes.report.measures import Evaluation, evaluations
from heroes.report.metrics import Metric

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # braille: two columns of four dots, from the top
BRAILLE = 0x2800
LABEL = 6  # room for "100 % ", at least


def score_curve(
    rows: Sequence[RoundRecord], width: int = 60, height: int = 8, *, ascii_only: bool = False
) -> list[str]:
    """The main metric over time, in `height` lines of at most `width` characters and two for the time axis.

    `rows` are the rounds of a run; there are no lines if the model was never tested. `ascii_only` is for
    terminals without braille.
    """
    found = evaluations(rows)
    if not found:
        return []
    low, high = _range(found, metric := Metric.of(rows))
    labels = [f"{metric.target(value)} " for value in (high, low)]
    room = max(LABEL, *map(len, labels))
    columns, lines = max(8, width - room - 2), max(2, height)
    across, down = (1, 1) if ascii_only else (2, 4)
    heights = _heights(found, columns * across, low, high, lines * down)
    picture = _letters(heights, columns, lines) if ascii_only else _braille(heights, columns, lines)
    edge, corner, floor = ("|", "+", "-") if ascii_only else ("┤", "└", "─")
    beside = [labels[0], *[""] * (lines - 2), labels[1]]
    body = [f"{label:>{room}}{edge}{text}".rstrip() for label, text in zip(beside, picture, strict=True)]
    end = f"{found[-1].seconds:,.1f} s"
    title = f"{rows[-1].clock} time"
    axis = f"0 s{title.center(max(len(title) + 2, columns - 3 - len(end)))}{end}"
    return [*body, " " * room + corner + floor * columns, " " * (room + 1) + axis]


def _range(found: Sequence[Evaluation], metric: Metric) -> tuple[float, float]:
    """Round numbers below and above all scores; for shares, multiples of ten percent."""
    least, most = min(each.score for each in found), max(each.score for each in found)
    if metric.share:
        low = min(0.9, math.floor(10 * least + 1e-9) / 10)
        return low, max(math.ceil(10 * most - 1e-9) / 10, low + 0.1)
    span = (most - least) or abs(most) or 1.0
    step = 10.0 ** math.floor(math.log10(max(span, 1e-280)))
    low = math.floor(least / step + 1e-9) * step
    return low, max(math.ceil(most / step - 1e-9) * step, low + step)


def _heights(
    found: Sequence[Evaluation], columns: int, low: float, high: float, steps: int
) -> list[int | None]:
    """The height of the curve in each column, in steps from the bottom; None before the first test."""
    end = found[-1].seconds
    heights: list[int | None] = []
    for column in range(columns):
        time = end * (column + 1) / columns if end > 0 else 0.0
        before = [each for each in found if each.seconds <= time * (1 + 1e-12)]
        part = (before[-1].score - low) / (high - low) if before else None
        heights.append(None if part is None else max(0, min(steps - 1, math.floor(part * steps))))
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
