"""Where a run can go on from: all that the server remembers after a round, in one file.

A checkpoint is a safetensors file; its metadata holds the rest as JSON, the settings that the rounds before
depend on among it, and a digest of everything. A file with the right name is whole. The last two are kept.
Nothing is pickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from heroes.errors import RunFolderError
from heroes.files import DRAFT, write_whole
from heroes.messages import ServerState
from heroes.runs.contents import VERSION, digest, packed, state_of
from heroes.settings.earlier import by_present_names

KEPT = 2
_NAME = re.compile(r"round-(\d{7,})\.safetensors")
_NOTHING: Mapping[str, Any] = {}


class AnotherRunError(RunFolderError):
    """A checkpoint that is whole, of a run with other settings."""


def write(folder: Path, state: ServerState[Any], settings: Mapping[str, Any] = _NOTHING) -> Path:
    """Put a checkpoint into the folder and remove old ones. `settings` are JSON values."""
    path = folder / f"round-{state.round:07}.safetensors"
    try:
        folder.mkdir(exist_ok=True)
        write_whole(path, packed(state, settings))
    except OSError as error:
        raise RunFolderError(
            f"cannot write the checkpoint {str(path)!r}: {error.strerror}; the one before it is kept"
        ) from None
    for old in [*found(folder)[KEPT:], *_drafts(folder)]:
        with suppress(OSError):
            old.unlink()
    return path


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: int(path.stem.removeprefix("round-")), reverse=True)


def remove_all(folder: Path) -> None:
    """Take away the checkpoints of a run that is replaced."""
    for path in [*found(folder), *_drafts(folder)]:
        path.unlink()


def _drafts(folder: Path) -> list[Path]:
    """What processes left that were killed while they wrote."""
    return list(folder.glob(f"round-*{DRAFT}")) if folder.is_dir() else []


def read_last(
    folder: Path, begin: ServerState[Any], settings: Mapping[str, Any] = _NOTHING, recorded: int | None = None
) -> ServerState[Any]:
    """The state in the newest checkpoint that is whole; `begin`, the state before the first round, where
    there is none yet. An error if it was written under other settings than these.

    With so many rounds `recorded`, one of a later round counts only if there is no other: its record is lost.
    """
    reasons: list[str] = []
    ahead: ServerState[Any] | None = None
    for path in found(folder):
        try:
            state = read(path, begin, settings)
            if recorded is None or state.round <= recorded:
                return state
            ahead = ahead or state
        except AnotherRunError:
            raise
        except RunFolderError as error:
            reasons.append(str(error))
    if ahead is not None:
        return ahead
    if reasons:
        raise RunFolderError(
            f"no checkpoint of the run can be used: {reasons[0]}; its records can be shown and compared, but "
            "to train it means to start a new run with --overwrite"
        )
    return begin


def read(path: Path, begin: ServerState[Any], settings: Mapping[str, Any] = _NOTHING) -> ServerState[Any]:
    """The state in a checkpoint; `begin` is the state before the first round, `settings` are the run's."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError, ValueError) as error:
        raise RunFolderError(f"cannot read the checkpoint {str(path)!r}: {error}") from None
    text = metadata.get("state", "")
    if metadata.get("digest") != digest(text, tensors):
        raise RunFolderError(f"the checkpoint {str(path)!r} is damaged: its digest is wrong")
    try:
        values = json.loads(text)
        if values["version"] != VERSION:
            raise RunFolderError(
                f"the checkpoint {str(path)!r} has version {values['version']!r}; this heroes reads {VERSION}"
            )
        _check_settings(path, values.get("settings", {}), settings)
        state = state_of(values, tensors, begin)
        _check_name(path, state.round)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise RunFolderError(f"the checkpoint {str(path)!r} is damaged: {error}") from None
    return state


def _check_name(path: Path, round_number: int) -> None:
    named = _NAME.fullmatch(path.name)
    if named is not None and int(named[1]) != round_number:
        raise ValueError(f"its name says round {int(named[1])}, but it is of round {round_number}")


def _check_settings(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another configuration by the first setting that differs from it."""
    if not isinstance(then, Mapping):
        raise TypeError("its settings are not by name")
    then = by_present_names(then)
    if then.get("strategy.step_limit") == "auto":  # its name before there were two such limits
        then = {**then, "strategy.step_limit": "shared"}
    for key, value in now.items():
        if key in then and then[key] != value:
            raise AnotherRunError(
                f"{key} is {value!r} in config.toml but was {then[key]!r} when the checkpoint {str(path)!r} "
                "was written: the file was edited, or the checkpoint is of another run. Put back what was "
                "there"
            )
