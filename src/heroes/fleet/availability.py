"""Who can be asked, before clients are sampled: everybody, those awake, or those connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heroes.errors import TrainingError
from heroes.fleet.faults import Faults, Mask
from heroes.messages import Integers

_DAY = 96  # times a day at which the server looks who is awake


@dataclass(frozen=True)
class Everybody:
    """All clients, always."""

    def candidates(self, clients: int, seconds: float) -> Integers:
        return np.arange(clients)

    def wait(self, needed: int, seconds: float) -> float:
        return 0.0


@dataclass(frozen=True)
class DayAndNight:
    """In virtual time: the clients that are awake. If too few are, the server waits for part of a day."""

    faults: Faults

    def candidates(self, clients: int, seconds: float) -> Integers:
        return _chosen(self.faults.available(seconds), clients)

    def wait(self, needed: int, seconds: float) -> float:
        for part in range(_DAY + 1):
            wait = part * self.faults.day / _DAY
            if len(self.candidates(self.faults.clients, seconds + wait)) >= needed:
                return wait
        raise TrainingError(
            f"at no time of the day are {needed} clients awake; raise faults.awake or lower server.at_least"
        )


@dataclass(frozen=True)
class Connected:
    """In real time: the clients that an engine can reach. `present` itself waits for some if necessary."""

    present: Callable[[], Mask | None]

    def candidates(self, clients: int, seconds: float) -> Integers:
        return _chosen(self.present(), clients)

    def wait(self, needed: int, seconds: float) -> float:
        return 0.0


def _chosen(mask: Mask | None, clients: int) -> Integers:
    return np.arange(clients) if mask is None else np.flatnonzero(mask)
