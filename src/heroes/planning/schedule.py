"""The learning rate over the rounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LearningRate:
    """Starts at `start`, is multiplied by `decay` after every round, and never falls below `floor`.

    >>> LearningRate(0.1, decay=0.5, floor=0.03).at(1), LearningRate(0.1, decay=0.5, floor=0.03).at(5)
    (0.05, 0.03)
    """

    start: float
    decay: float = 1.0
    floor: float = 0.0

    def at(self, rounds_done: int) -> float:
        return float(max(self.start * self.decay**rounds_done, min(self.floor, self.start)))
