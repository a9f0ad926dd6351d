"""Whether the other ranks still live: rank 0 asks each of them twice a second, and they answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

_ASK = 0.5  # seconds between two questions to a rank
_LOOK = 0.1  # seconds between two looks at the clock
_QUIET = 2.0  # seconds without a word after which a rank may be gone


class Watch:
    """How long each of these ranks has been silent, since it was first heard.

    Time in which this process itself stood still does not count: it could have heard nobody.
    """

    def __init__(self, ranks: Iterable[int], now: Callable[[], float] = time.monotonic) -> None:
        self.patience = 300.0  # seconds
        self._now = now
        self._looked = now()
        self._time = 0.0
        self._heard: dict[int, float | None] = dict.fromkeys(ranks)
        self._asked: dict[int, float] = {}

    def look(self) -> bool:
        """Let time pass; whether it is worth looking at who is to be asked, and who is gone."""
        now = self._now()
        if now - self._looked < _LOOK:
            return False
        self._time += min(now - self._looked, _ASK)
        self._looked = now
        return True

    def hear(self, rank: int) -> None:
        if rank in self._heard:
            self._heard[rank] = self._time

    def leave(self, rank: int) -> None:
        """Nothing more is expected of this rank."""
        self._heard.pop(rank, None)

    def ask(self) -> list[int]:
        """The ranks to be asked now: never asked, or heard since, so that questions do not pile up."""
        due = [rank for rank, heard in self._heard.items() if self._due(rank, heard)]
        self._asked.update(dict.fromkeys(due, self._time))
        return due

    def _due(self, rank: int, heard: float | None) -> bool:
        asked = self._asked.get(rank)
        return asked is None or (heard is not None and heard >= asked and self._time >= asked + _ASK)

    def quiet(self, rank: int) -> bool:
        """Whether this rank was there and may be gone."""
        return self._silent(rank) > _QUIET

    def lost(self) -> list[int]:
        """The ranks that have been silent for longer than anybody waits; each is named once."""
        gone = [rank for rank in self._heard if self._silent(rank) > self.patience]
        for rank in gone:
            self.leave(rank)
        return gone

    def _silent(self, rank: int) -> float:
        heard = self._heard.get(rank)
        return 0.0 if heard is None else self._time - heard
