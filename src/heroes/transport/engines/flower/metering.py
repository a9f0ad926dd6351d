"""Where the time of a deployed client's answer went: its process's start, the network, Flower's pauses.

A node of `heroes flower node` measures how long its messages are on the network. Its SuperNode does so in one
process, its tasks say so in others; they share eight bytes of memory, which every forked process inherits.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from heroes.errors import printable
from heroes.messages import Spent

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LONGEST_NAME = 63  # characters
_MOST_MEMORY = 2**50  # bytes


@dataclass
class Meter:
    """Seconds in which at least one request was under way, in all, as every process of a node sees them."""

    memory: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 8))
    _under_way: int = 0
    _since: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    @property
    def seconds(self) -> float:
        return float(struct.unpack("d", self.memory[:8])[0])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of what is done here; requests may overlap, as Flower sends several at once."""
        with self._lock:
            self._under_way += 1
            if self._under_way == 1:
                self._since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                if not self._under_way:
                    self.memory[:8] = struct.pack("d", self.seconds + time.monotonic() - self._since)

    def counting(self, request: Callable[_P, _R]) -> Callable[_P, _R]:
        """The same request, counted."""

        def counted(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self.running():
                return request(*args, **kwargs)

        return counted


METERS: list[Meter] = []
"""the meter of this node, if it has one"""


def on_network() -> dict[str, float]:
    """What an answer says of the network: for how many seconds this node's messages were on it so far."""
    return {"network": round(METERS[-1].seconds, 4)} if METERS else {}


class Ledger:
    """What nodes said of themselves and of the network, from which follows what each answer took."""

    def __init__(self) -> None:
        self._totals: dict[int, float] = {}
        self._names: dict[int, str] = {}

    def open(self, node: int, values: dict[str, Any]) -> None:
        """A node says who it is, and with that what it spent before any task."""
        self._totals[node] = _seconds(values.get("network"), math.inf) or 0.0
        self._names[node] = printable(str(values.get("name", "")), _LONGEST_NAME)

    def spent(self, node: int, values: dict[str, Any], round_trip: float) -> Spent | None:
        """What a client spent from the task to the answer; None if it does not say how long it trained.

        What it sends now is known only when it answers again: the upload counted here is its last one.
        """
        trained = _seconds(values.get("trained"), round_trip)
        if trained is None:
            return None
        memory, name = _bytes(values.get("memory")), self._names.get(node, "")
        started = _seconds(values.get("started"), round_trip - trained) or 0.0
        rest = round_trip - trained - started
        total = _seconds(values.get("network"), math.inf)
        if total is None:
            return Spent(trained, rest, started, memory=memory, name=name)
        before = self._totals.get(node, 0.0)
        self._totals[node] = total
        since = total - before if total >= before else total  # a node that was restarted began at 0
        travelled = min(since, rest)
        return Spent(trained, travelled, started, rest - travelled, memory, name)


def _seconds(told: Any, most: float) -> float | None:
    """What a node says it took, if that can be."""
    return told if isinstance(told, float) and 0.0 <= told <= most and math.isfinite(told) else None


def _bytes(told: Any) -> int | None:
    """The memory that a node says it takes, if that can be."""
    return told if type(told) is int and 0 < told < _MOST_MEMORY else None
