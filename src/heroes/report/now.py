"""The round that goes on, where a run tells of it: who was asked, and who is in (the tracker `live`)."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from heroes.errors import HeroesError, RunFolderError, printable

NOW = "now.jsonl"
MOST = 1 << 20  # bytes of it that are read
_NAME = 80  # characters


@dataclass(frozen=True)
class Asked:
    """A client that is asked to train."""

    client: int
    device: str
    width: int
    tau: int


@dataclass(frozen=True)
class Round:
    """The first line: who is asked in which round."""

    round: int
    attempt: int
    clients: tuple[Asked, ...]


@dataclass(frozen=True)
class Answer:
    """Every other line: who is in, after how many seconds of wall time, or lost by which cause."""

    client: int
    lost: str | None
    seconds: float


_ROUND, _ANSWER = TypeAdapter(Round), TypeAdapter(Answer)


def read_now(folder: Path) -> dict[str, Any] | None:
    """The round that goes on as plain values; None if the run does not tell of it, or tells nonsense."""
    try:
        with opened(folder / NOW) as file:
            first, *rest = file.read(MOST).split(b"\n")[:-1]
        asked, came = _ROUND.validate_json(first), [_ANSWER.validate_json(line) for line in rest]
    except (HeroesError, OSError, ValueError):
        return None
    answers = {each.client: each for each in came}
    clients = [_shown(each, answers.get(each.client)) for each in asked.clients]
    return {"round": asked.round, "attempt": asked.attempt, "clients": clients}


def _shown(asked: Asked, answer: Answer | None) -> dict[str, Any]:
    lost = None if answer is None or answer.lost is None else printable(answer.lost, _NAME)
    seconds = None if answer is None else answer.seconds
    return {**asdict(asked), "device": printable(asked.device, _NAME), "lost": lost, "seconds": seconds}


def opened(path: Path) -> IO[bytes]:
    """A plain file for reading; links are not followed, and pipes are not waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise RunFolderError(f"{path.name} is not a plain file")
    return file
