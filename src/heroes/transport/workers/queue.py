"""What a pool of workers does next: the longest first, without running far ahead of the plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class Queue:
    """The places 0, 1, 2, ... of a plan, in stretches of `window` places, the most costly first.

    Answers are used in plan order, so one that comes early is kept by whoever uses it. When two windows of
    them are kept, nothing is handed out until the place they wait for has answered: memory does not grow with
    the plan.

    >>> queue = Queue([1.0, 5.0, 2.0, 9.0, 3.0], window=3)
    >>> [queue.take(busy=False) for _ in range(5)]
    [1, 0, 3, 4, 2]
    """

    def __init__(self, costs: Sequence[float], window: int) -> None:
        # the last stretch is a whole one: there it matters that workers end together
        first = len(costs) % window
        order = sorted(range(len(costs)), key=lambda n: ((n - first) // window, -costs[n]))
        self.length = len(costs)
        self.most_kept = 2 * window
        self.turn = 0  # every place before this one has answered
        self._waiting = deque(order)
        self._early: set[int] = set()

    def take(self, busy: bool) -> int | None:
        """The next place, or None if there is none or it should wait; it never waits when nobody is busy."""
        if not self._waiting or (busy and len(self._early) >= self.most_kept):
            return None
        return self._waiting.popleft()

    def put_back(self, place: int) -> None:
        """Hand this place out again before all others."""
        self._waiting.appendleft(place)

    def done(self, place: int) -> None:
        self._early.add(place)
        while self.turn in self._early:
            self._early.remove(self.turn)
            self.turn += 1

    @property
    def finished(self) -> bool:
        return self.turn == self.length
