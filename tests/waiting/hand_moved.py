"""Time that a test moves."""

from __future__ import annotations


class Clock:
    """Tells what the test set."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds
