"""The first moments: Ctrl-C is one line also while the commands are still being imported."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    # a job in the background may be told not to
    heeded = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    _on_signals(_leave, heeded)
    from heroes.cli import commands  # takes a while, and must not be left half done

    _on_signals(signal.default_int_handler, heeded)  # to be ended politely is to be interrupted
    commands.run()


def _on_signals(handler: signal._HANDLER, heeded: bool) -> None:
    signal.signal(signal.SIGTERM, handler)
    if heeded:
        signal.signal(signal.SIGINT, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing has been done yet that needs an end: an exception might be swallowed by what is imported."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
