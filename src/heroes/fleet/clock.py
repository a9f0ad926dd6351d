"""Clocks. Virtual time is computed from FLOPs, bytes and the fleet's draws, never read off the wall, so a run repeats exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heroes.contracts import Timing
from heroes.messages import Assignment


class VirtualClock:
    """A round lasts as long as its slowest client."""

    def elapse(self, plan: Sequence[Assignment]) -> Timing:
        finished = np.array([assignment.seconds for assignment in plan])
        return Timing(float(finished.max()), finished)


@dataclass(frozen=True)
class FixedClock:
    """Every round lasts the same, for tests."""

    seconds: float = 1.0

    def elapse(self, plan: Sequence[Assignment]) -> Timing:
        return Timing(self.seconds, np.full(len(plan), self.seconds))
