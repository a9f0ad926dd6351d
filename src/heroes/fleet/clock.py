"""The virtual clock: time computed from FLOPs, bytes and the fleet's draws, so that a run repeats exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heroes.fleet.faults import GONE, Faults
from heroes.fleet.foresight import Today
from heroes.messages import Assignment, Lost, Spent, Timing


def closing_time(plan: Sequence[Assignment], deadline: float | None, factor: float | None) -> float:
    """When a round closes with the updates it has: a time, or a multiple of the planned length."""
    planned = max(assignment.seconds for assignment in plan)
    return min(math.inf if factor is None else factor * planned, math.inf if deadline is None else deadline)


@dataclass(frozen=True)
class VirtualClock:
    """A round lasts until the updates wanted are in, until nobody else can come, or until its deadline.

    `deadline` is in seconds, `deadline_factor` a multiple of the planned length of the round: when its
    slowest client would be done if nothing went wrong. In virtual time it is known beforehand who will not be
    in, so nobody trains in vain. With `today`, plans are made without knowing what clients really take: they
    are charged that, and it is what is measured of those who are in.
    """

    faults: Faults | None = None
    deadline: float | None = None
    deadline_factor: float | None = None
    today: Today | None = None

    @property
    def name(self) -> str:
        return "virtual"

    def lived(self, plan: Sequence[Assignment]) -> tuple[Assignment, ...]:
        told = plan if self.today is None else self.today.lived(plan)
        # clients have no such seconds
        return tuple(a if a.until is None else replace(a, until=None) for a in told)

    def absent(self, plan: Sequence[Assignment], wanted: int) -> tuple[Lost, ...]:
        return self._course(plan, wanted)[1]

    def elapse(self, plan: Sequence[Assignment], wanted: int) -> Timing:
        return self._course(plan, wanted)[0]

    def _course(self, plan: Sequence[Assignment], wanted: int) -> tuple[Timing, tuple[Lost, ...]]:
        limit = closing_time(plan, self.deadline, self.deadline_factor)
        plan = plan if self.today is None else self.today.real(plan)
        kinds = [self.faults.draw(a) if self.faults else None for a in plan]
        heard = np.array([self.faults.heard(a) if self.faults else a.seconds for a in plan])
        arriving = [
            n for n in np.argsort(heard, kind="stable").tolist() if kinds[n] not in GONE and heard[n] <= limit
        ]
        if len(arriving) >= wanted:
            duration = float(heard[arriving[wanted - 1]])
        else:
            duration = min(limit, float(heard.max()))
        kept = set(arriving[:wanted])
        lost = [
            self._lost(a, kinds[n], heard[n], duration, limit) for n, a in enumerate(plan) if n not in kept
        ]
        timing = Timing(duration, np.minimum(heard, duration))
        if self.today is not None:
            spent = {a.client: Spent(a.compute_seconds, a.transfer_seconds) for a in plan}
            noted = arriving[:wanted]
            measured = self.today.measured([plan[n] for n in noted], heard[noted].tolist())
            timing = replace(timing, spent=spent, measured=measured)
        return timing, tuple(lost)

    @staticmethod
    def _lost(a: Assignment, kind: str | None, heard: float, duration: float, limit: float) -> Lost:
        if kind in GONE and (heard <= duration or math.isinf(heard)):
            return Lost(a.client, GONE[kind], kind)
        if heard > limit:
            return Lost(a.client, f"not in after {limit:.2f} seconds", "late")
        return Lost(a.client, "not needed: enough others were in before", "surplus")


@dataclass(frozen=True)
class FixedClock:
    """Every round takes equally long and every update is in time; for tests."""

    seconds: float = 1.0

    @property
    def name(self) -> str:
        return "virtual"

    def lived(self, plan: Sequence[Assignment]) -> tuple[Assignment, ...]:
        return tuple(plan)

    def absent(self, plan: Sequence[Assignment], wanted: int) -> tuple[Lost, ...]:
        return ()

    def elapse(self, plan: Sequence[Assignment], wanted: int) -> Timing:
        return Timing(self.seconds, np.full(len(plan), self.seconds))
