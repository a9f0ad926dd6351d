"""Follows a run as it is written: what is new in its records since one last looked, as plain values.

Only what was added is read. A run that goes on after an interruption replaces its records; then all is new.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heroes.errors import HeroesError, printable
from heroes.messages import ClientRecord, RoundRecord
from heroes.report.metrics import Metric
from heroes.report.now import opened, read_now
from heroes.report.records import read_config, read_record
from heroes.report.run_plots import counted_blocks
from heroes.report.style import colour

RECORDS, CONFIG = "records.jsonl", "config.toml"
PIECE = 1 << 20  # bytes that are read at a time
DEPTH = 3  # folders below the one that is watched in which runs are looked for
MOST_RUNS = 200
_NAME, _TEXT = 80, 400  # characters


def runs_in(folder: Path) -> dict[str, Path]:
    """The run folders here, by name: the folder itself, or those in it. Links are not followed."""
    if (folder / CONFIG).exists() or (folder / RECORDS).exists():
        return {printable(folder.resolve().name, _NAME): folder}
    found = (path.parent for depth in range(1, DEPTH + 1) for path in _signs(folder, depth))
    inside = sorted({path for path in found if not _linked(path, folder)})[:MOST_RUNS]
    return {printable(path.relative_to(folder).as_posix(), _NAME): path for path in inside}


def _signs(folder: Path, depth: int) -> Iterator[Path]:
    """Files so deep in it by which one knows a run folder."""
    try:
        for name in (CONFIG, RECORDS):
            yield from folder.glob("/".join(["*"] * depth + [name]))
    except OSError:  # it vanished, or may not be read
        return


def _linked(path: Path, top: Path) -> bool:
    return any(part.is_symlink() for part in (path, *path.parents) if part != top and top in part.parents)


def last_round(folder: Path, tested: bool = False) -> tuple[RoundRecord, float] | None:
    """The last whole round in a run folder, or the last that was tested, and when the last one was written.

    None if none can be read.
    """
    try:
        with opened(folder / RECORDS) as file:
            found = os.fstat(file.fileno())
            file.seek(max(0, found.st_size - PIECE))
            lines = file.read(PIECE).split(b"\n")
        rounds = (read_record(line.decode(errors="replace")) for line in reversed(lines[:-1]))
        last = next((row for row in rounds if not tested or row.score is not None), None)
        return None if last is None else (last, found.st_mtime)
    except (HeroesError, OSError, ValueError):
        return None


@dataclass
class _Client:
    """What is known of one client."""

    device: str = ""
    width: int = 0
    tau: int = 0
    step: float = 0.0  # seconds of one local step, the last time
    waiting: float = 0.0
    seen: int = 0  # the last round that it answered in
    rounds: int = 0  # how many it was asked in
    lost: Counter[str] = field(default_factory=Counter)
    name: str = ""  # of its node, the last that it said
    memory: int | None = None  # of its node, the last time

    def took_part(self, entry: ClientRecord, number: int, cause: str | None) -> None:
        self.device, self.width, self.tau = printable(entry.device, _NAME), entry.width, entry.tau
        self.step = entry.compute_seconds / max(1, entry.tau)
        self.rounds += 1
        self.name, self.memory = printable(entry.name, _NAME) or self.name, entry.memory or self.memory
        if cause is None:
            self.waiting, self.seen = entry.waiting, number
        else:
            self.lost[cause] += 1

    def shown(self, number: int) -> dict[str, Any]:
        return {**vars(self), "client": number, "lost": dict(self.lost)}


class Follower:
    """Reads one run as it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._forget()

    def _forget(self) -> None:
        self._file: tuple[int, int] | None = None
        self._offset, self._rest, self._line = 0, b"", 0
        self._clients: dict[int, _Client] = {}
        self._about: dict[str, Any] = {}
        self._flaw: str | None = None
        self._unclear: str | None = None  # what is wrong with its configuration
        self._said: str | None = ""  # nothing was said yet
        self._now: dict[str, Any] | None = None

    def news(self) -> dict[str, Any] | None:
        """What is new, or None. `reset` says that what was told before is no longer so."""
        try:
            rows, reset = self._read()
            flaw = self._flaw or self._unclear
        except FileNotFoundError:
            rows, reset, flaw = [], False, self._gone()
        except (HeroesError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            rows, reset, flaw = [], False, f"cannot be read: {reason}"
        now = read_now(self.folder)
        if not rows and not reset and flaw == self._said and now == self._now:
            return None
        self._said, self._now = flaw, now
        wrong = None if flaw is None else printable(flaw, _TEXT)
        return self._told(rows) | {"reset": reset, "error": wrong, "now": now}

    def _gone(self) -> str | None:
        """Why there are no records: the run has not begun, or its folder is gone."""
        if not self.folder.is_dir():
            return "the run folder is gone"
        return "the records of the run are gone" if self._file else "no round is finished yet"

    def _read(self) -> tuple[list[RoundRecord], bool]:
        """The rounds that were added, and whether the file is another than before."""
        with opened(self.folder / RECORDS) as file:
            found = os.fstat(file.fileno())
            same = (found.st_dev, found.st_ino)
            reset = self._file != same or found.st_size < self._offset
            if reset:
                self._forget()
                self._file, self._about = same, self._described()
            file.seek(self._offset)
            content = file.read(PIECE)
        self._offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        return [] if self._flaw else self._parsed(lines), reset

    def _parsed(self, lines: list[bytes]) -> list[RoundRecord]:
        """The rounds in these lines, up to the first that is damaged."""
        rows = []
        for line in lines:
            self._line += 1
            try:
                rows.append(read_record(line.decode(errors="replace")))
            except ValueError as error:
                self._flaw = f"line {self._line} of {RECORDS} is damaged: {error}; what follows is not shown"
                break
        return rows

    @property
    def behind(self) -> bool:
        """Whether there is more to read at once."""
        try:
            return self._offset < (self.folder / RECORDS).stat().st_size and self._file is not None
        except OSError:
            return False

    def _described(self) -> dict[str, Any]:
        """What its configuration says of a run; where it cannot be read, the page says why."""
        try:
            tree = read_config(self.folder)
        except HeroesError as error:
            self._unclear = str(error)
            return {}
        strategy = _word(tree, "strategy", "name")
        rounds = _part(tree, "federation").get("rounds")
        return {
            "experiment": str(tree.get("experiment", ""))[:_NAME],
            "strategy": strategy,
            "colour": colour(strategy),
            "seed": str(tree.get("seed", ""))[:_NAME],
            "rounds": rounds if isinstance(rounds, int) else None,
        }

    def _told(self, rows: list[RoundRecord]) -> dict[str, Any]:
        """These rounds for the page."""
        if not rows:
            return {"about": self._about}
        last, metric = rows[-1], Metric.of(rows)
        log = [entry for row in rows for entry in self._noted(row)]
        changed = {entry.client for row in rows for entry in row.clients}
        timeline = next((row for row in reversed(rows) if row.clients), last)
        grid = next((grid for row in reversed(rows) if (grid := counted_blocks(row)) is not None), None)
        return {
            "about": self._about,
            "metric": {"name": metric.name, "scale": metric.scale, "unit": metric.unit},
            "clock": last.clock,
            "rows": [_row(row) for row in rows],
            "clients": [self._clients[number].shown(number) for number in sorted(changed)],
            "timeline": _timeline(timeline),
            "grid": None if grid is None else grid.ravel().tolist(),
            "log": log,
            "stopped": last.stopped,
        }

    def _noted(self, row: RoundRecord) -> list[dict[str, Any]]:
        """Take a round in, and tell who was lost in it."""
        causes = {lost.client: lost.cause for lost in row.missing}
        for entry in row.clients:
            known = self._clients.setdefault(entry.client, _Client())
            known.took_part(entry, row.round, causes.get(entry.client))
        missing = [*(lost for before in row.abandoned for lost in before.missing), *row.missing]
        return [
            {
                "round": row.round,
                "client": lost.client,
                "cause": printable(lost.cause, _NAME),
                "reason": printable(lost.reason, _TEXT),
            }
            for lost in missing
        ]


def _row(row: RoundRecord) -> dict[str, Any]:
    names = ("round", "seconds", "duration", "waiting", "traffic", "loss", "score")
    return {name: getattr(row, name) for name in names} | {"lost": len(row.missing)}


def _timeline(row: RoundRecord) -> dict[str, Any]:
    causes = {lost.client: printable(lost.cause, _NAME) for lost in row.missing}
    spent = ("start_seconds", "compute_seconds", "transfer_seconds", "pause_seconds", "waiting")
    names = ("client", "width", "tau", *spent)
    return {
        "round": row.round,
        "duration": row.duration,
        "clients": [
            {name: getattr(entry, name) for name in names}
            | {
                "device": printable(entry.device, _NAME),
                "name": printable(entry.name, _NAME),
                "lost": causes.get(entry.client),
            }
            for entry in row.clients
        ],
    }


def _part(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, Mapping) else {}


def _word(tree: Mapping[str, Any], section: str, key: str) -> str:
    return printable(str(_part(tree, section).get(key, "")), _NAME)
