"""What people see: tables, live progress on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import rich.box
import rich.markup
import rich.progress
import rich.table
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from heroes.errors import printable
from heroes.messages import Lost, RoundRecord
from heroes.report import Metric, Summary, Table, score_curve
from heroes.report.summary import MEGABYTE
from heroes.settings.config import Config

_PRETENDED = ("dropout", "upload_loss", "crash", "late", "surplus", "abandoned")  # the cause says it all
_LONGEST_CELL = 500  # characters
_SHORT = 16  # characters; what is no longer is not broken if there is room
_GAP = 3  # characters between the columns of a table
OnWork = Callable[[str, int, int | None], None]


class PlainConsole(Console):
    """A console on which foreign text is text, not commands: one line without control characters."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **how)


out_console = PlainConsole(highlight=False, width=None if sys.stdout.isatty() else 120)
err_console = PlainConsole(stderr=True, highlight=False)


class Watching(NamedTuple):
    """The callbacks of a run: for its rounds, and for data being prepared."""

    on_round: Callable[[RoundRecord], None] | None
    on_progress: OnWork | None


def note(text: str) -> None:
    """Something the user should know, on standard error."""
    err_console.print(f"note: {text}", style="yellow", markup=False, soft_wrap=True)


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
    """
    out_console.print(table.title, style="bold", markup=False)
    columns = list(zip(table.header, *table.rows, strict=True))
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
    for row in table.rows:
        shown.add_row(*(_cell(text).replace(" (", "\n(" if wide else " (") for text in row))
    out_console.print(shown)
    if table.note:
        out_console.print(table.note, markup=False)


def _narrowed(columns: Sequence[Sequence[str]]) -> list[int]:
    """Widths for a table that is too wide: at least as the longest words.

    What room is left goes to the columns from the last to the first, so that their cells fit into two lines,
    and then so that they fit into one.
    """
    widths = [min(_SHORT, _longest([word for text in column for word in text.split()])) for column in columns]
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
        yield _every_tenth()


def _every_tenth() -> OnWork:
    """Plain lines: at the start and at every tenth of the way."""
    said: dict[str, int] = {}

    def say(what: str, done: int, total: int | None) -> None:
        tenth = 10 * done // total if total else 0
        if said.get(what, -1) < tenth:
            said[what] = tenth
            err_console.print(f"{what}: {10 * tenth} %" if total else what, markup=False, soft_wrap=True)

    return say


@contextmanager
def rounds_in_progress(config: Config, quiet: bool = False) -> Iterator[Watching]:
    """Callbacks for records and for data preparation: a live display on a terminal, lines elsewhere."""
    name, total = f"{config.experiment}/{config.strategy.name}", config.federation.rounds
    if quiet:
        yield Watching(None, None)
    elif err_console.is_terminal:
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, TextColumn("{task.fields[line]}"), console=err_console) as bar:
            job = bar.add_task(_cell(name), total=total, line="setting up")
            told = _Notices(bar.console)

            def show(record: RoundRecord) -> None:
                told.look_at(record)
                bar.update(job, completed=record.round, line=_cell(_line(record)))

            def prepare(what: str, done: int, of: int | None) -> None:
                if of:
                    bar.update(job, line=_cell(f"{what} {100 * done // of} %"))
                else:
                    bar.console.print(what, markup=False, soft_wrap=True)

            yield Watching(show, prepare)
    else:
        told = _Notices(err_console)

        def say(record: RoundRecord) -> None:
            told.look_at(record)
            err_console.print(
                f"{name} round {record.round}/{total}  {_line(record)}", markup=False, soft_wrap=True
            )

        yield Watching(say, _every_tenth())


def _line(record: RoundRecord) -> str:
    scored = "" if record.score is None else f"{record.metric} {Metric(record.metric).text(record.score)}  "
    spent = f"time {record.seconds:,.1f} s  waiting {record.waiting:.2f} s"
    return f"{scored}{spent}  traffic {record.traffic / MEGABYTE:,.1f} MB"


def _counted(missing: Sequence[Lost]) -> str:
    """How many are missing by cause; where one is enough, why.

    >>> _counted([Lost(3, "gone before it trained", "dropout"), Lost(4, "w is not finite", "finite")])
    '1 x dropout, 1 x finite (client 4: w is not finite)'
    """
    first = {lost.cause: lost for lost in reversed(missing)}
    counts = Counter(lost.cause for lost in missing)
    return ", ".join(f"{counts[cause]} x {cause}{_why(first[cause])}" for cause in sorted(counts))


def _why(lost: Lost) -> str:
    return "" if lost.cause in _PRETENDED else f" (client {lost.client}: {lost.reason})"


class _Notices:
    """What a user should know of a run, said once, or as it happens."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.said: set[str] = set()

    def look_at(self, record: RoundRecord) -> None:
        for notice in record.facts.get("notices", ()):
            self._once(notice)
        for before in record.abandoned:
            self._say(
                f"round {record.round} is begun again; left out of {len(before.clients)}: "
                f"{_counted(before.missing)}"
            )
        if troubles := [lost for lost in record.missing if lost.cause != "surplus"]:
            self._say(f"round {record.round}, left out of {len(record.clients)}: {_counted(troubles)}")

    def _say(self, text: str) -> None:
        self.console.print(text, style="yellow", markup=False, soft_wrap=True)

    def _once(self, text: str) -> None:
        if text not in self.said:
            self.said.add(text)
            self.console.print(f"note: {text}", style="yellow", markup=False, soft_wrap=True)
