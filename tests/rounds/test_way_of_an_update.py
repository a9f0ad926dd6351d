"""The way of an update from the client to the model stays short, in files that a reader has to open."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import heroes
from heroes.assemble import assembled
from heroes.messages import Update
from heroes.rounds import begin, try_round
from heroes.settings.recipes import recipe
from heroes.transport.engines import in_process

HOME = Path(heroes.__file__).parent
FILES = {
    "client/training.py",
    "transport/engines/in_process.py",
    "server/pairing.py",
    "rounds.py",
    "strategies/heroes.py",
}


@contextmanager
def watched(holding: set[str]) -> Iterator[None]:
    """Note the files of the package that have an update in their hands."""

    def note(frame: FrameType, event: str, value: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if HOME not in path.parents or event not in ("call", "return"):
            return
        if any(isinstance(one, Update) for one in (*frame.f_locals.values(), value)):
            holding.add(str(path.relative_to(HOME)))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_an_update_passes_five_files() -> None:
    config = recipe("digits", "heroes").changed({"engine.name": "in_process", "federation.cohort": 1})
    holding: set[str] = set()
    with assembled(config, in_process.opened) as federation:
        state = try_round(federation, begin(federation), 0).after  # what is made once is made here
        with watched(holding):
            try_round(federation, state, 0)
    assert holding == FILES
