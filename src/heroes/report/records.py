"""Reads the records of a run. `RoundRecord` is the schema; rows of version 0.1.0 are brought up to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from heroes.errors import RunFolderError
from heroes.messages import LARGEST, RoundRecord
from heroes.settings import toml_text
from heroes.settings.earlier import by_present_names

LONGEST_NAME = 64  # of a metric, in characters
LONGEST_TEXT = 10_000
MOST_ENTRIES = 10_000_000  # in a list or a section
WIDEST = 10**9
_SHOWN = 60  # characters of a wrong value in a message
_RECORD = TypeAdapter(RoundRecord)
_MOVED = ("tau_star", "rounds_left", "rule", "deadline")  # what 0.1.0 wrote beside the facts
_UNREACHABLE = "strategy.threshold could not be reached with the estimates of that time"


@dataclass(frozen=True)
class Records:
    """The rounds of a run, oldest first. `torn`: the last line was cut off, and is left out."""

    rows: tuple[RoundRecord, ...]
    torn: bool = False


def read_records(folder: Path) -> Records:
    """Read the rounds in the run folder `folder`. A last line that was cut off is left out; any other that
    is damaged is an error.
    """
    path = folder / "records.jsonl"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{str(folder)!r} is not a run folder: it has no records.jsonl") from None
    except OSError as error:
        raise RunFolderError(f"cannot read {str(path)!r}: {error.strerror}") from None
    whole, tail = lines[:-1], lines[-1]
    rows = []
    for number, line in enumerate(whole, 1):
        try:
            rows.append(read_record(line))
        except ValueError as error:
            raise RunFolderError(f"line {number} of {str(path)!r} is damaged: {error}") from None
    return Records(tuple(rows), torn=tail != "")


def check_order(rows: Sequence[RoundRecord], folder: Path) -> None:
    """Refuse records in which a line is missing, doubled or from another run.

    Rounds must be 1, 2, 3, ..., and time and traffic must never fall.
    """
    path, seconds, traffic = str(folder / "records.jsonl"), 0.0, 0
    for number, row in enumerate(rows, 1):
        if row.round != number:
            raise RunFolderError(
                f"line {number} of {path!r} is of round {row.round}: a line is missing or doubled; restore "
                "the file"
            )
        if row.seconds < seconds or row.traffic < traffic:
            what = (
                f"seconds fall from {seconds!r} to {row.seconds!r}"
                if row.seconds < seconds
                else f"traffic falls from {traffic!r} to {row.traffic!r}"
            )
            raise RunFolderError(f"line {number} of {path!r} does not follow the one before: {what}")
        seconds, traffic = row.seconds, row.traffic


def read_record(line: str) -> RoundRecord:
    """Read one line as a record. A ValueError says in a few words which key is wrong."""
    try:
        row = json.loads(line)
        flaw = _flaw(row)
    except (ValueError, RecursionError):
        raise ValueError("it is not a record in JSON") from None
    if not isinstance(row, dict):
        raise ValueError(f"it is {_short(row)}, not a record in JSON")
    if flaw is not None:
        raise ValueError(f"{_cut(flaw[0])} {flaw[1]}")
    try:
        record = _RECORD.validate_json(line if "scores" in row else json.dumps(upgraded(row)), strict=True)
    except ValidationError as error:
        raise ValueError(_told(error)) from None
    _check_scores(record)
    return record


def upgraded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of 0.1.0 as this version would write it. Values of a wrong type stay, and are refused later.

    In 0.1.0 some facts stood outside of `facts`, None for strategies without them; each client had a reducing
    error, and its pieces were called blocks; accuracy was the only metric.
    """
    accuracy, widths = row.get("accuracy"), row.get("accuracy_by_width", {})
    new: dict[str, Any] = {"scores": {} if accuracy is None else {"accuracy": accuracy}}
    if isinstance(widths, dict):
        widths = {width: {"accuracy": value} for width, value in widths.items()}
    new["scores_by_width"] = widths
    entries = row.get("clients")
    clients = entries if isinstance(entries, list) and all(isinstance(e, dict) for e in entries) else []
    if clients:
        new["clients"] = [{"pieces": each.get("blocks", ()), **each} for each in clients]
    facts = row.get("facts", {})
    if isinstance(facts, dict):
        errors = [each["reducing_error"] for each in clients if each.get("reducing_error") is not None]
        notices = [_UNREACHABLE] if row.get("threshold_unreachable") is True else None
        beside = {key: row.get(key) for key in _MOVED} | {
            "notices": notices,
            "reducing_errors": errors or None,
        }
        every = (*facts.items(), *beside.items())
        new["facts"] = {key: value for key, value in every if value is not None}
    return row | new


def _flaw(value: Any) -> tuple[str, str] | None:
    """The first value that is not finite or too large: its place and what is wrong; None if there is none."""
    if isinstance(value, (int, float)):
        return None if abs(value) < LARGEST else ("", f"is {_short(value)}, not a number below {LARGEST:g}")
    if isinstance(value, str):
        return None if len(value) <= LONGEST_TEXT else ("", f"is a text of {len(value):,} characters")
    if not isinstance(value, (list, dict)):
        return None
    if len(value) > MOST_ENTRIES:
        return "", f"has {len(value):,} entries"
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
        flaw = _flaw(entry)
        if flaw is not None:
            place, why = flaw
            return f"{key}.{place}" if place else str(key), why
    return None


def _told(error: ValidationError) -> str:
    """The first mistake in a few words, with its key."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return "it is not a record in JSON"
    place = _cut(".".join(str(part) for part in first["loc"] if part != "[key]"))
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place} is {_short(first['input'])}: {first['msg'].replace('Input', 'it')}"


def _check_scores(record: RoundRecord) -> None:
    """Refuse impossible scores; a ValueError says which."""
    by_width = record.scores_by_width
    for name in (record.metric, *record.scores, *(name for scores in by_width.values() for name in scores)):
        if not 0 < len(name) <= LONGEST_NAME:
            raise ValueError(f"a metric is called {_short(name)}: a name has 1 to {LONGEST_NAME} characters")
    for width, scores in by_width.items():
        if not 0 < width < WIDEST:
            raise ValueError(f"scores_by_width has a width that is not from 1 to {WIDEST - 1:,}")
        _check_accuracy(scores, f"scores_by_width.{width}")
    _check_accuracy(record.scores, "scores")


def _check_accuracy(scores: Mapping[str, float], place: str) -> None:
    accuracy = scores.get("accuracy", 0.0)
    if not 0 <= accuracy <= 1:
        raise ValueError(f"{place}.accuracy is {accuracy!r}; it should be from 0 to 1")


def _short(value: Any) -> str:
    try:
        return _cut(repr(value))
    except ValueError:  # a whole number with too many digits to be written
        return "a huge number"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def read_config(folder: Path) -> Mapping[str, Any]:
    """Read the configuration in the run folder `folder` as nested plain values."""
    path = folder / "config.toml"
    try:
        return by_present_names(toml_text.read(path))
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{str(folder)!r} is not a run folder: it has no config.toml") from None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot read {str(path)!r} as TOML: {error}") from None
