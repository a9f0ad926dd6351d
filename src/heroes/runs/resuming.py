"""What a run goes on from: its records and its last checkpoint, if they belong to each other and to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heroes.errors import RunFolderError
from heroes.federation import Federation
from heroes.messages import RoundRecord, ServerState
from heroes.report.records import check_order, read_records
from heroes.rounds import begin
from heroes.runs import configured
from heroes.runs.checkpoints import read_last
from heroes.runs.folder import CHECKPOINTS, RECORDS
from heroes.settings.config import Config

Rows = tuple[RoundRecord, ...]


def rounds_on_record(folder: Path) -> Rows:
    """The rounds of a run that is to go on; none where it was killed before the first."""
    if not (folder / RECORDS).exists():
        return ()
    rows = read_records(folder).rows
    check_order(rows, folder)
    return rows


def last_state(
    folder: Path, federation: Federation, before: Config, after: Config, done: Rows
) -> ServerState[Any]:
    """The state that a run goes on from; an error if it is not this run's, or if too much would be lost."""
    state = read_last(folder / CHECKPOINTS, begin(federation), configured.bound(after), len(done))
    _check_moments(folder, federation, state)
    if state.round:
        _check_record(folder, state, done)
    every = before.checkpoint.every
    _check_loss(folder, state, done, every if not state.round else max(every, after.checkpoint.every))
    return state


def _check_moments(folder: Path, federation: Federation, state: ServerState[Any]) -> None:
    kinds = () if federation.optimiser is None else federation.optimiser.moments
    if strange := sorted(set(state.moments) - set(kinds)):
        raise RunFolderError(
            f"the checkpoint of round {state.round} in {str(folder)!r} is damaged: it has a moment "
            f"{strange[0]!r}, which the configured server optimiser does not keep"
        )


def _check_record(folder: Path, state: ServerState[Any], done: Rows) -> None:
    """A checkpoint and the record of its round say the same."""
    if state.round > len(done):
        raise RunFolderError(
            f"{str(folder / RECORDS)!r} has {len(done)} rounds, but the checkpoint is of round "
            f"{state.round}: lines are missing; put them back"
        )
    row = done[state.round - 1]
    for what, recorded, kept in (
        ("seconds", row.seconds, state.seconds),
        ("bytes of traffic", row.traffic, state.bytes_up + state.bytes_down),
    ):
        if recorded != kept:
            raise RunFolderError(
                f"after round {state.round} there were {recorded!r} {what} by {str(folder / RECORDS)!r}, but "
                f"{kept!r} by the checkpoint; one of them is of another run: put back what was there"
            )


def _check_loss(folder: Path, state: ServerState[Any], done: Rows, every: int) -> None:
    """Refuse to do more rounds again than happens when a process is killed."""
    again = len(done) - state.round
    if again <= (every + 1 if every else 0):
        return
    newest = (
        f"its newest whole checkpoint is of round {state.round}" if state.round else "it has no checkpoint"
    )
    allow = f"--set checkpoint.every={again - 1} allows that; or " if state.round else ""
    raise RunFolderError(
        f"the run in {str(folder)!r} has {len(done)} rounds on record, but {newest} (checkpoint.every is "
        f"{every}): {again} rounds would have to be done again; {allow}start a new run with --overwrite"
    )
