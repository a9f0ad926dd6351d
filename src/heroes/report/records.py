"""Read what a run wrote down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heroes.errors import RunFolderError
from heroes.settings import toml_text

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Records:
    """The rounds of a run, oldest first. `torn` says that the last line was cut off and is left out."""

    rows: tuple[Row, ...]
    torn: bool = False


def read_records(folder: Path) -> Records:
    """The rounds in a run folder. A last line that was cut off is left out; a broken line elsewhere is an
    error.
    """
    path = folder / "records.jsonl"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{str(folder)!r} is not a run folder: it has no records.jsonl") from None
    except OSError as error:
        raise RunFolderError(f"cannot read {str(path)!r}: {error.strerror}") from None
    rows: list[Row] = []
    whole, tail = lines[:-1], lines[-1]
    for number, line in enumerate(whole, 1):
        row = _row(line)
        if row is None:
            raise RunFolderError(f"{str(path)!r} is damaged: line {number} is not a record")
        rows.append(row)
    return Records(tuple(rows), torn=tail != "")


def _row(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    needed = ("round", "seconds", "duration", "waiting", "traffic", "missing", "clients")
    return row if isinstance(row, dict) and all(key in row for key in needed) else None


def read_config(folder: Path) -> Mapping[str, Any]:
    """The configuration in a run folder, as nested plain values."""
    path = folder / "config.toml"
    try:
        return toml_text.read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{str(folder)!r} is not a run folder: it has no config.toml") from None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot read {str(path)!r} as TOML: {error}") from None
