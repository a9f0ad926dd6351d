"""FedNova: clients do as many steps as their time allows, and changes are normalised by them.

A client that does more steps goes further, and in FedAvg the model would follow it. Here each change is
divided by the length a of its local steps, and the mean is taken times the mean length:

    w + mean(a) * mean(change / a)

Without momentum a is tau. With momentum rho every gradient goes on moving the weights for the rest of the
round, and a = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho). With equal steps this is FedAvg, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from heroes.fields import Whole
from heroes.messages import Cohort, Facts, Plan, ServerState
from heroes.slices.cuts import Part, scaled
from heroes.strategies.base import Answers, WholeModel


class FedNova(WholeModel):
    """FedAvg of changes normalised by their local steps, of which each client does what it has time for."""

    name: Literal["fednova"] = "fednova"
    """the strategy"""
    tau_max: Whole = 100
    """most local steps"""

    tries = MappingProxyType({"strategy.tau_max": (20, 50)})
    colour = "#332288"
    marker = "h"

    def reveals(self) -> str | None:
        return "changes that FedNova makes longer after they were clipped; use another strategy"

    def assign(self, state: ServerState[Any], cohort: Cohort) -> Plan:
        """As many steps for each as end with the round, in which the average client does `tau`."""
        return self.own_taus(state, cohort, self.load(cohort), self.tau, max(self.tau, self.tau_max))

    def aggregate(
        self, state: ServerState[Any], plan: Plan, answers: Answers
    ) -> tuple[ServerState[Any], Facts]:
        """The mean of what the changes would be at the mean length of those who were asked, then scaled to
        that of those who answered.
        """
        asked = [length(a.tau, self.ground.momentum) for a in plan.assignments]
        common, lengths = sum(asked) / len(asked), list[float]()
        after = self.averaged(state, self._parts(state, answers, common, lengths))
        effective = sum(lengths) / len(lengths) if lengths else common
        tensors = scaled(state.tensors, after.tensors, effective / common)
        return replace(after, tensors=tensors), {"tau_effective": effective}

    def _parts(
        self, state: ServerState[Any], answers: Answers, common: float, lengths: list[float]
    ) -> Iterator[Part]:
        for assignment, update in answers:
            lengths.append(length(assignment.tau, self.ground.momentum))
            cut, tensors = self.part(assignment, update)
            yield cut, scaled(state.tensors, tensors, common / lengths[-1])


def length(tau: int, momentum: float) -> float:
    """How far tau steps go, in gradients.

    >>> length(2, 0.0), round(length(2, 0.9), 9), round(length(50, 0.9), 2)
    (2.0, 2.9, 410.46)
    """
    return (tau - momentum * (1 - momentum**tau) / (1 - momentum)) / (1 - momentum)
