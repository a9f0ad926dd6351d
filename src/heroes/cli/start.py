"""The first moments: Ctrl-C is one line also while the commands are still being imported, and whoever reads
what is printed may leave before the end (`heroes list | head -3`).
"""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    sys.stdout, sys.stderr = _tolerant(sys.stdout), _tolerant(sys.stderr)
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


class _Tolerant(io.FileIO):
    """A file that may be a pipe: when nobody reads it any more, the rest goes nowhere, and work goes on."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return cast(int, super().write(data))
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return cast(int, super().write(data))


def _tolerant(stream: TextIO) -> TextIO:
    """The stream, if it is no terminal, as one that does not mind a closed pipe."""
    if stream is None or stream.isatty():  # there may be none
        return stream
    file = io.BufferedWriter(_Tolerant(stream.fileno(), "wb", closefd=False))
    lines = stream is sys.stderr
    return io.TextIOWrapper(file, stream.encoding, stream.errors, line_buffering=lines)
