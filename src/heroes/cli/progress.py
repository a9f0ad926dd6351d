"""A run while it goes on: one line that fits into the terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import rich.table
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from heroes.cli.console import OnWork, err_console, every_tenth
from heroes.errors import HeroesError, printable
from heroes.messages import Lost, RoundRecord
from heroes.report import Metric
from heroes.report.summary import MEGABYTE
from heroes.settings.config import Config

_PRETENDED = ("dropout", "upload_loss", "crash", "late", "surplus", "abandoned")  # the cause says it all
_NARROWEST, _WIDEST = 6, 24  # columns of a bar


class Watching(NamedTuple):
    """The callbacks of a run: for its rounds, for the clients of a round, and for data being prepared."""

    on_round: Callable[[RoundRecord], None] | None
    on_client: Callable[[int, int, int], None] | None
    on_progress: OnWork | None


@contextmanager
def rounds_in_progress(config: Config, quiet: bool = False) -> Iterator[Watching]:
    """The callbacks of a run that show how it goes: a live line on a terminal, a line a round elsewhere."""
    told = Notices(err_console)
    if quiet:
        yield Watching(None, None, None)
    elif err_console.is_terminal:
        line = Line(config)

        def show(record: RoundRecord) -> None:
            told.look_at(record)
            line.round(record)

        with Live(line, console=err_console, refresh_per_second=4) as live:
            try:
                yield Watching(show, line.client, line.work)
            except HeroesError:
                live.transient = not line.results  # nothing was done that would be worth a line
                raise
    else:
        name, total = _name(config), config.federation.rounds

        def say(record: RoundRecord) -> None:
            told.look_at(record)
            text = "  ".join(_told(record))
            err_console.print(f"{name} round {record.round}/{total}  {text}", markup=False, soft_wrap=True)

        yield Watching(say, None, every_tenth())


class Line:
    """Where a run stands: its round, the clients of the round, the time it took and will take, its results.

    `now` tells the time in seconds.
    """

    def __init__(self, config: Config, now: Callable[[], float] = time.monotonic) -> None:
        f = config.federation
        self.name, self.rounds = _name(config), f.rounds
        self.config = config
        self.now, self.begun = now, now()
        self.doing = "setting up"
        self.results: list[str] = []
        self.shares: dict[str, float] = {}
        self.first: dict[str, tuple[float, float]] = {}  # when a share was first known, and what it was

    def client(self, number: int, done: int, asked: int) -> None:
        """So many of the clients that were asked in this round have answered."""
        self.doing = f"round {number}/{self.rounds}  client {done}/{asked}"
        so_far = shares(self.config, number - 1 + done / asked)
        for what in so_far if number == 1 else ("rounds",):
            self._note(what, so_far[what])

    def round(self, record: RoundRecord) -> None:
        """A round is over, and its results are known."""
        self.results = _told(record)
        for what, share in shares(self.config, record.round, record.seconds, record.traffic).items():
            self._note(what, max(share, self.shares.get(what, 0.0)))

    def work(self, what: str, done: int, total: int | None) -> None:
        """Data is being prepared."""
        if total:
            self.doing = printable(f"{what} {100 * done // total} %")
        else:
            err_console.print(what, markup=False, soft_wrap=True)

    def _note(self, what: str, share: float) -> None:
        self.first.setdefault(what, (self.now(), share))
        self.shares[what] = share

    def left(self) -> float | None:
        """Seconds until the first limit is reached, if the rest goes as what was seen; None at the start."""
        found = []
        for what, (when, share) in self.first.items():
            gained = self.shares[what] - share
            if gained > 0:
                found.append((1 - self.shares[what]) / gained * (self.now() - when))
        return max(0.0, min(found)) if found else None

    def text(self, width: int) -> str:
        """What fits into so many columns: the round and the time first, then the name, then results."""
        left = self.left()
        spent = clock_text(self.now() - self.begun) + ("" if left is None else f", {clock_text(left)} left")
        said = f"{self.doing}  {spent}"
        if len(f"{self.name}  {said}") > width:
            return said
        said = f"{self.name}  {said}"
        for part in self.results:
            if len(f"{said}  {part}") > width:
                break
            said = f"{said}  {part}"
        return said

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        said = self.text(options.max_width)
        room = min(_WIDEST, options.max_width - len(said) - 2)
        if room < _NARROWEST:
            yield Text(said, no_wrap=True, overflow="ellipsis")
            return
        grid = rich.table.Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(Text(said), ProgressBar(1.0, max(self.shares.values(), default=0.0), width=room))
        yield grid


def shares(config: Config, rounds: float, seconds: float = 0.0, traffic: int = 0) -> dict[str, float]:
    """How much of each limit of a run is spent."""
    f = config.federation
    spent = {"rounds": rounds / f.rounds}
    if f.time_budget:
        spent["seconds"] = seconds / f.time_budget
    if f.traffic_budget:
        spent["traffic"] = traffic / (f.traffic_budget * MEGABYTE)
    return spent


def _name(config: Config) -> str:
    return printable(f"{config.experiment}/{config.strategy.name}")


def clock_text(seconds: float) -> str:
    """
    >>> clock_text(75.2), clock_text(7384)
    ('1:15', '2:03:04')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def score_text(record: RoundRecord) -> list[str]:
    """The score of a round, if it was tested."""
    if record.score is None:
        return []
    return [printable(f"{record.metric} {Metric(record.metric).text(record.score)}")]


def _told(record: RoundRecord) -> list[str]:
    spent = [f"time {record.seconds:,.1f} s", f"waiting {record.waiting:.2f} s"]
    return [*score_text(record), *spent, f"traffic {record.traffic / MEGABYTE:,.1f} MB"]


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


class Notices:
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
