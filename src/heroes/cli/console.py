"""What people see: tables, and how far a piece of work is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich.box
import rich.markup
import rich.progress
import rich.table
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from heroes.errors import printable
from heroes.messages import RoundRecord
from heroes.report import Summary, Table, score_curve

_LONGEST_CELL = 500  # characters
_SHORT = 16  # characters; what is no longer is not broken if there is room
_WHOLE = 8  # characters of a cell that is never broken
_GAP = 3  # characters between the columns of a table
OnWork = Callable[[str, int, int | None], None]


class PlainConsole(Console):
    """A console on which foreign text is text, not commands: one line without control characters."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **how)


out_console = PlainConsole(highlight=False, width=None if sys.stdout.isatty() else 120)
err_console = PlainConsole(stderr=True, highlight=False)


def note(text: str) -> None:
    """Something the user should know, on standard error."""
    _say(f"note: {text}", "yellow")


def say_error(text: str) -> None:
    """What went wrong, on standard error."""
    _say(f"error: {text}", "red")


def _say(text: str, colour: str) -> None:
    """A sentence: on a terminal broken between words, in a file in one line."""
    err_console.print(text, style=colour, markup=False, soft_wrap=not err_console.is_terminal)


def _cell(text: str) -> str:
    """A text as a part of a table or of a live display."""
    return rich.markup.escape(printable(text, _LONGEST_CELL))


def print_pairs(pairs: list[tuple[str, str]], title: str | None = None) -> None:
    """Names and texts in two columns."""
    table = rich.table.Table(
        title=title and _cell(title),
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        padding=(0, 2),
    )
    for name, text in pairs:
        table.add_row(_cell(name), _cell(text))
    out_console.print(table)


def print_table(table: Table) -> None:
    """A table with a header; numbers to the right. The title may be wider than the table.

    If the terminal is too narrow, cells are broken before brackets, then between words; no digit is cut off.
    What does not fit even then is shown in a further part below, with the names again.
    """
    out_console.print(table.title, style="bold", markup=False)
    for part in _parts(list(zip(table.header, *table.rows, strict=True))):
        _print_columns(part)
    if table.note:
        out_console.print(table.note, markup=False)


def _print_columns(columns: Sequence[Sequence[str]]) -> None:
    wide = _GAP * (len(columns) + 1) + sum(map(_longest, columns)) > out_console.width
    shown = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1), show_edge=not wide, pad_edge=not wide)
    for place, ((name, *cells), width) in enumerate(zip(columns, _narrowed(columns), strict=True)):
        numbers = place > 0 and all(
            not cell or cell.lstrip("-")[:1].isdigit() or cell.startswith(("not ", "untrained"))
            for cell in cells
        )
        shown.add_column(
            _cell(name),
            justify="right" if numbers else "left",
            overflow="fold",
            no_wrap=not wide and _longest(cells) <= _SHORT,
            width=width if wide else None,
        )
    for row in zip(*(cells for _, *cells in columns), strict=True):
        shown.add_row(*(_cell(text).replace(" (", "\n(" if wide else " (") for text in row))
    out_console.print(shown)


def _parts(columns: Sequence[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """The columns in as few parts as fit if every cell may take two lines; the first is in all of them."""
    first, *others = columns
    part, room = [first], out_console.width - _least(first)
    for column in others:
        needs = _GAP + _least(column)
        if needs > room and len(part) > 1:
            yield part
            part, room = [first], out_console.width - _least(first)
        part.append(column)
        room -= needs
    yield part


def _least(column: Sequence[str]) -> int:
    """The width in which words are whole and cells have two lines; those that are very long have more."""
    words = [word for text in column for word in text.split()]
    lines = [line for text in column for line in text.replace(" (", "\n(").split("\n")]
    return max(min(_SHORT, _longest(words)), min(_SHORT, (_longest(lines) + 1) // 2 + 1))


def _narrowed(columns: Sequence[Sequence[str]]) -> list[int]:
    """Widths for a table that is too wide: at least as the longest words and the shortest cells.

    What room is left goes to the columns from the last to the first, so that their cells fit into two lines,
    and then so that they fit into one.
    """
    words = [
        [word for text in column for word in ([text] if len(text) <= _WHOLE else text.split())]
        for column in columns
    ]
    widths = [min(_SHORT, _longest(each)) for each in words]
    room = out_console.width - _GAP * (len(columns) - 1) - sum(widths)
    for parts in (2, 1):
        for place in reversed(range(len(columns))):
            lines = [line for text in columns[place] for line in text.replace(" (", "\n(").split("\n")]
            wanted = -(-_longest(lines) // parts) + parts - 1
            more = max(0, min(room, wanted - widths[place]))
            widths[place], room = widths[place] + more, room - more
    return widths


def _longest(texts: Sequence[str]) -> int:
    return max(map(len, texts), default=0)


def print_summary(summary: Summary, rows: Sequence[RoundRecord], folder: Path) -> None:
    """A run for people: its numbers and the curve of its test scores."""
    print_pairs([*summary.lines(), ("run folder", str(folder))])
    curve = score_curve(
        rows, width=min(out_console.width - 4, 72), ascii_only=out_console.encoding != "utf-8"
    )
    for line in curve:
        out_console.print(line, markup=False, no_wrap=True)


@contextmanager
def status(text: str, quiet: bool = False) -> Iterator[None]:
    """A sign of life while something loads."""
    if quiet or not err_console.is_terminal:
        yield
    else:
        with err_console.status(text):
            yield


@contextmanager
def work_in_progress(quiet: bool = False) -> Iterator[OnWork | None]:
    """A function to call with (what, done, total) while data is fetched or prepared."""
    if quiet:
        yield None
    elif err_console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=err_console, transient=True) as bar:
            jobs: dict[str, rich.progress.TaskID] = {}

            def show(what: str, done: int, total: int | None) -> None:
                if what not in jobs:
                    jobs[what] = bar.add_task(_cell(what))
                bar.update(jobs[what], completed=done, total=total)

            yield show
    else:
        yield every_tenth()


def every_tenth() -> OnWork:
    """Plain lines: at the start and at every tenth of the way."""
    said: dict[str, int] = {}

    def say(what: str, done: int, total: int | None) -> None:
        tenth = 10 * done // total if total else 0
        if said.get(what, -1) < tenth:
            said[what] = tenth
            err_console.print(f"{what}: {10 * tenth} %" if total else what, markup=False, soft_wrap=True)

    return say
