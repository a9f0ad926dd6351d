"""Who hears of a run as it happens: trackers by name, objects and functions of the user's own.

One that fails is reported and left out from then on: a run does not end because of a tracker.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, TypeGuard

from heroes import plugins
from heroes.contracts import Tracker
from heroes.errors import ConfigError, said
from heroes.messages import Assignment, RoundRecord, plain
from heroes.report.now import NOW, Answer, Asked, Round
from heroes.runs.bar import Bar
from heroes.runs.dashboards import MLflow, TensorBoard, Wandb, needed
from heroes.runs.moment import Moment
from heroes.runs.telling import Listener

_COLUMNS = (
    "round",
    "seconds",
    "duration",
    "waiting",
    "traffic",
    "learning_rate",
    "loss",
    "test_loss",
    "metric",
    "score",
    "energy",
)


class Csv:
    """Writes `rounds.csv` into the run folder, one line a round."""

    def __init__(self) -> None:
        self._file: IO[str] | None = None

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        self._file = (needed("csv", folder) / "rounds.csv").open("w", newline="", encoding="utf-8")
        csv.writer(self._file).writerow(_COLUMNS)
        for record in done:
            self.round(record)

    def round(self, record: RoundRecord) -> None:
        assert self._file is not None
        csv.writer(self._file).writerow([getattr(record, name) for name in _COLUMNS])
        self._file.flush()

    def end(self) -> None:
        if self._file is not None:
            self._file.close()


class Live:
    """Writes `now.jsonl` into the run folder while a round goes on: who was asked, who is in. For `watch`."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: IO[str] | None = None
        self._begun = 0.0

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        self._path = needed("live", folder) / NOW

    def asked(self, plan: Sequence[Assignment]) -> None:
        assert self._path is not None
        self._close()
        self._file, self._begun = self._path.open("w", encoding="utf-8"), time.monotonic()
        clients = tuple(Asked(a.client, a.device, a.selection.width, a.tau) for a in plan)
        self._write(Round(plan[0].round, plan[0].attempt, clients))

    def answered(self, client: int, lost: str | None) -> None:
        self._write(Answer(client, lost, time.monotonic() - self._begun))

    def _write(self, what: Round | Answer) -> None:
        assert self._file is not None
        self._file.write(json.dumps(plain(what)) + "\n")
        self._file.flush()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def round(self, record: RoundRecord) -> None:
        """What it wrote is of no use any more when the next round begins."""

    def end(self) -> None:
        self._close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


TRACKERS: Mapping[str, Callable[[], Tracker]] = {
    "csv": Csv,
    "live": Live,
    "bar": Bar,
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": Wandb,
}
Callback = Callable[[Moment], None]


class Looker(Protocol):
    """What a tracker may have besides: it gets the model after every round."""

    def after(self, moment: Moment) -> None:
        """A round is over; `moment.model(width)` is the model now."""


class _Function:
    """A function of the user's own as a tracker: it is called after every round."""

    def __init__(self, function: Callback) -> None:
        self.after = function

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        pass

    def end(self) -> None:
        pass


def chosen(wanted: Iterable[str | Tracker | Callback]) -> list[tuple[str, Tracker]]:
    """Trackers with their names, from names, objects and functions; a ConfigError where one is neither.

    A name that is given twice counts once.
    """
    each = list(wanted)
    names = dict.fromkeys(one for one in each if isinstance(one, str))
    return [_tracker(one) for one in [*names, *(one for one in each if not isinstance(one, str))]]


def _tracker(wanted: str | Tracker | Callback) -> tuple[str, Tracker]:
    made: Any
    if isinstance(wanted, str):
        name, made = wanted, plugins.find("tracker", "track", wanted, TRACKERS)()
    elif callable(wanted) and not hasattr(wanted, "begin"):
        return getattr(wanted, "__name__", type(wanted).__name__), _Function(wanted)
    else:
        name, made = type(wanted).__name__, wanted
    lacks = [method for method in ("begin", "round", "end") if not callable(getattr(made, method, None))]
    if lacks:
        raise ConfigError(f"the tracker {name!r} has no method {lacks[0]!r}; see heroes.contracts.Tracker")
    return name, made


def _listens(tracker: Tracker | Listener) -> TypeGuard[Listener]:
    return all(callable(getattr(tracker, method, None)) for method in ("asked", "answered"))


def _looks(tracker: Tracker | Looker) -> TypeGuard[Looker]:
    return callable(getattr(tracker, "after", None))


class Audience:
    """All trackers of a run. `tell` hears of those that fail."""

    def __init__(self, trackers: Sequence[tuple[str, Tracker]], tell: Callable[[str], None]) -> None:
        self._trackers = list(trackers)
        self._tell = tell

    @contextmanager
    def during(
        self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]
    ) -> Iterator[Callback]:
        """Tell trackers of the beginning and the end; yields the function to call after every round."""
        self._each(lambda tracker: tracker.begin(settings, folder, done))
        try:
            yield lambda moment: self._each(lambda tracker: _tell_round(tracker, moment))
        finally:
            self._each(lambda tracker: tracker.end())

    @property
    def listens(self) -> bool:
        """Whether any of them hears of a round while it goes on."""
        return any(_listens(tracker) for _, tracker in self._trackers)

    def asked(self, plan: Sequence[Assignment]) -> None:
        self._each(lambda tracker: tracker.asked(plan) if _listens(tracker) else None)

    def answered(self, client: int, lost: str | None) -> None:
        self._each(lambda tracker: tracker.answered(client, lost) if _listens(tracker) else None)

    def _each(self, say: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers):
            try:
                say(tracker)
            except Exception as error:  # a tracker of another package can fail in any way
                self._trackers.remove((name, tracker))
                self._tell(f"the tracker {name!r} failed and hears no more of this run: {said(error)}")


def _tell_round(tracker: Tracker, moment: Moment) -> None:
    tracker.round(moment.record)
    if _looks(tracker):
        tracker.after(moment)
