"""Runs that are made in processes of their own, while they go on: told by what their folders hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from heroes.cli.console import err_console
from heroes.cli.progress import clock_text, score_text, shares
from heroes.report.following import last_round
from heroes.runs.planned import Planned

PLAIN = 60.0  # seconds between lines where there is no terminal
_AGE = 5.0  # seconds that a round may be old before one is told


class Together:
    """Where runs stand, each known by a title. `now` tells the time in seconds.

    Those `going_on` were begun before; what others' folders hold of earlier runs does not count.
    """

    def __init__(
        self,
        runs: Mapping[str, Planned],
        going_on: Collection[Path] = (),
        now: Callable[[], float] = time.time,
        head: str = "",
    ) -> None:
        self.runs, self.going_on, self.now, self.head = runs, going_on, now, head
        self.begun = now()
        self.over: set[Path] = set()
        self._before = sum(self._share(each) for each in runs.values())

    def left(self) -> float | None:
        """Seconds until all are over, if the rest goes as what was seen; None at the start.

        A run that stops at a target stands nearer to its end than its share says.
        """
        done = sum(self._share(each) for each in self.runs.values())
        gained = done - self._before
        return (len(self.runs) - done) / gained * (self.now() - self.begun) if gained > 0 else None

    def lines(self) -> list[str]:
        """How far all are, then a line for each that is under way."""
        left = self.left()
        spent = clock_text(self.now() - self.begun) + ("" if left is None else f", {clock_text(left)} left")
        share = sum(self._share(each) for each in self.runs.values()) / len(self.runs)
        head = f"{self.head}run {len(self.over)}/{len(self.runs)}  {100 * share:.0f} %  {spent}"
        return [head, *(line for title, each in self.runs.items() if (line := self._line(title, each)))]

    def _share(self, run: Planned) -> float:
        """How much of a run is done, by the limit that it is nearest to."""
        if run.folder in self.over:
            return 1.0
        found = last_round(run.folder)
        if found is None or (found[1] < self.begun and run.folder not in self.going_on):
            return 0.0
        record = found[0]
        return min(1.0, max(shares(run.config, record.round, record.seconds, record.traffic).values()))

    def _line(self, title: str, run: Planned) -> str | None:
        """A run that is under way; how long it is silent tells of a round that is tried again."""
        found = None if run.folder in self.over else last_round(run.folder)
        if found is None or found[1] < self.begun:
            return None
        record, written = found
        tested = last_round(run.folder, tested=True)  # is written with the next round, so seldom last
        scored = [] if tested is None else score_text(tested[0])
        age = self.now() - written
        when = "" if age < _AGE else f" {clock_text(age)} ago"
        return "  ".join([f"{100 * self._share(run):2.0f} %", f"round {record.round}{when}", *scored, title])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(self.lines()):
            yield Text(f"  {line}" if number else line, no_wrap=True, overflow="ellipsis")


@contextmanager
def runs_in_progress(together: Together, quiet: bool = False) -> Iterator[None]:
    """Show these runs while they go on: live lines on a terminal, one line a minute elsewhere."""
    if quiet:
        yield
    elif err_console.is_terminal:
        with Live(together, console=err_console, refresh_per_second=1, transient=True):
            yield
    else:
        ended = threading.Event()

        def tell() -> None:
            while not ended.wait(PLAIN):
                err_console.print("; ".join(together.lines()), markup=False, soft_wrap=True)

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()
