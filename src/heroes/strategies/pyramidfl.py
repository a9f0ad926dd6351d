"""PyramidFL: Oort's choice of clients, and inside the cohort more work for those who have time for it.

Clients whose last changes were large and of much data are ranked first and send most of their change; the
others leave more of it out, the smallest values. Then everyone who would wait for the last one makes more
local steps instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np

from heroes.fields import NotNegative, Share, Whole
from heroes.messages import Cohort, Facts, Plan, ServerState
from heroes.slices.cuts import Part, cut_out
from heroes.strategies.base import Answers, WholeModel

if TYPE_CHECKING:
    from heroes.contracts import Sampler


@dataclass(frozen=True)
class PyramidMemory:
    """How much each client's last change weighed: its norm times the examples behind it."""

    weights: dict[int, float]

    def fits(self, begin: PyramidMemory) -> bool:
        """Whether a run that began so can have come to this."""
        return all(client >= 0 and 0 <= weight < math.inf for client, weight in self.weights.items())


State = ServerState[PyramidMemory]


class PyramidFL(WholeModel):
    """Oort's clients, each with as many steps as its time allows and an upload by its rank."""

    name: Literal["pyramidfl"] = "pyramidfl"
    """the strategy"""
    drop_first: Share = 0.1
    """share of its change that the first of a cohort leaves out"""
    drop_range: Share = 0.5
    """how much more the last leaves out"""
    more_steps: NotNegative = 1.0
    """beta: how much of the time that a client would wait goes into more steps"""
    tau_max: Whole = 100
    """most local steps"""

    requires = MappingProxyType({"federation.sampler": "oort"})
    tries = MappingProxyType({"strategy.more_steps": (0.0, 0.5)})
    colour = "#999999"
    marker = "8"

    def sampler(self) -> Sampler:
        from heroes.planning.oort import Oort

        return Oort()

    def begin(self, seed: int) -> State:
        return replace(super().begin(seed), memory=PyramidMemory({}))

    def assign(self, state: State, cohort: Cohort) -> Plan:
        shares = self.shares(state.memory.weights, cohort.clients.tolist())
        load = self.sent_up(cohort, self.load(cohort), [self.ground.up_bits] * len(cohort), shares)
        each = self.tau * load.mu + load.nu
        more = np.floor(self.more_steps * (each.max() - each) / load.mu + 1e-9)
        taus = np.minimum(self.tau + more, max(self.tau, self.tau_max)).astype(int).tolist()
        given = zip(self.given(state, cohort, load, taus), shares, strict=True)
        facts = {"tau_star": float(self.tau), "rule": "time", "shares": shares}
        return Plan(tuple(replace(a, up_share=share) for a, share in given), facts)

    def shares(self, weights: dict[int, float], clients: list[int]) -> list[float]:
        """What each client sends of its change, by its rank; clients never seen are in the middle."""
        known = [weights[client] for client in clients if client in weights]
        middle = median(known) if known else 0.0
        order = sorted(clients, key=lambda client: (-weights.get(client, middle), client))
        rank = {client: place for place, client in enumerate(order)}
        dropped = (self.drop_first + rank[client] * self.drop_range / len(clients) for client in clients)
        return [max(1.0 - part, 0.01) for part in dropped]

    def aggregate(self, state: State, plan: Plan, answers: Answers) -> tuple[State, Facts]:
        weights = dict(state.memory.weights)
        after = self.averaged(state, self._parts(state, answers, weights))
        return replace(after, memory=PyramidMemory(weights)), {}

    def _parts(self, state: State, answers: Answers, weights: dict[int, float]) -> Iterator[Part]:
        for assignment, update in answers:
            cut, tensors = self.part(assignment, update)
            received = cut_out(state.tensors, cut)
            square = sum(float((t - received[name]).double().square().sum()) for name, t in tensors.items())
            weights[assignment.client] = math.sqrt(square) * update.samples
            yield cut, tensors
