"""Delays Ctrl-C until what was begun is finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def finishing_first() -> Iterator[None]:
    """Delay Ctrl-C until the end of the context; a second Ctrl-C acts at once."""
    pressed: list[int] = []

    def hear(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    main = threading.current_thread() is threading.main_thread()
    polite = [
        s
        for s in (signal.SIGINT, signal.SIGTERM)
        if main and signal.getsignal(s) is signal.default_int_handler
    ]
    for number in polite:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number in polite:
            signal.signal(number, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt
