"""Counts rounds that are done again after an interruption, since privacy pays for them twice.

Clients may have seen both models, and the system's randomness does not repeat, so such a round is another
one. How many there were is in a file of the run folder, which is written before any of them is done again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heroes.errors import RunFolderError
from heroes.federation import Federation
from heroes.messages import RoundRecord
from heroes.runs.files import write_whole

SPENT = "privacy.json"


def counting_again(
    federation: Federation, folder: Path, done: Sequence[RoundRecord], after: int
) -> Federation:
    """The federation that goes on after so many of the rounds done, with the others counted as spent."""
    privacy = federation.privacy
    if privacy is None or (privacy.seed is not None and federation.clock.name == "virtual"):
        return federation  # the same rounds come out again, to the bit
    ended = len(done) == after and bool(done) and done[-1].stopped is not None
    again = 0 if ended else len(done) - after + 1  # one more may have been under way, and not written yet
    repeated = _read(folder / SPENT) + max(0, again)
    if again > 0:
        _write(folder / SPENT, repeated)
    return replace(federation, privacy=replace(privacy, repeated=repeated))


def _read(path: Path) -> int:
    try:
        known = json.loads(path.read_bytes())["repeated"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFolderError(
            f"cannot read {str(path)!r}, which says what privacy was spent: {error}"
        ) from None
    if type(known) is not int or not 0 <= known < 2**53:
        raise RunFolderError(
            f"{str(path)!r} says {known!r} rounds were repeated; it should be a number from 0 on"
        )
    return known


def _write(path: Path, repeated: int) -> None:
    try:
        write_whole(path, json.dumps({"repeated": repeated}).encode() + b"\n")
    except OSError as error:
        raise RunFolderError(f"cannot write {str(path)!r}: {error.strerror}; the run is as it was") from None
