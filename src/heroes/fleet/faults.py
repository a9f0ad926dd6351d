"""What goes wrong with clients. All of it is drawn from the seed, so that a bad day repeats exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from heroes import seeds
from heroes.messages import Assignment, Floats

Mask = npt.NDArray[np.bool_]
GONE = {  # faults after which no update comes
    "dropout": "gone before it trained",
    "upload_loss": "gone before its update was in",
    "crash": "failed half-way through its training",
}
KINDS = (*GONE, "stall", "garbage")


@dataclass(frozen=True)
class Faults:
    """How often things happen to clients in a round, who is hostile, and when clients can be asked."""

    seed: int
    clients: int
    dropout: float = 0.0
    upload_loss: float = 0.0
    crash: float = 0.0
    stall: float = 0.0
    stall_factor: float = 10.0
    garbage: float = 0.0
    silent: bool = False
    attackers: float = 0.0
    attack: str = "flip"
    attack_scale: float = 10.0
    availability: str = "always"
    day: float = 86400.0
    awake: float = 0.5

    def draw(self, assignment: Assignment) -> str | None:
        """What happens to the client in this attempt at the round: one of `KINDS`, or nothing."""
        rates = np.cumsum([getattr(self, kind) for kind in KINDS])
        if not rates[-1]:
            return None
        chance = seeds.stream(
            self.seed, "faults", assignment.round, assignment.attempt, assignment.client
        ).random()
        kind = int(np.searchsorted(rates, chance, side="right"))
        return KINDS[kind] if kind < len(KINDS) else None

    def hostile(self, client: int) -> bool:
        """Whether the client is an attacker, in every round."""
        return bool(self._attacks[client])

    @cached_property
    def _attacks(self) -> Mask:
        order = seeds.stream(self.seed, "faults", "attackers").permutation(self.clients)
        return order < round(self.attackers * self.clients)

    def heard(self, assignment: Assignment) -> float:
        """When the server has the client's update, or notices that it is gone."""
        kind = self.draw(assignment)
        if kind in GONE and self.silent:
            return float("inf")
        if kind == "dropout":
            return 0.0
        if kind == "crash":
            return assignment.compute_seconds / 2
        extra = (self.stall_factor - 1) * assignment.compute_seconds if kind == "stall" else 0.0
        return assignment.seconds + extra

    def available(self, seconds: float) -> Mask | None:
        """Who can be asked at this time of day; None is everybody."""
        if self.availability == "always":
            return None
        return (seconds / self.day + self._mornings) % 1.0 < self.awake

    @cached_property
    def _mornings(self) -> Floats:
        return seeds.stream(self.seed, "faults", "days").random(self.clients)
