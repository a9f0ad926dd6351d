"""FedProx: FedAvg with a term that holds clients to what they received, so that they may do unequal work.

Every client trains for as many steps as end with the round, which is as long as the average client needs for
`tau` of them; nobody is dropped for being slow.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

from heroes.fields import NotNegative, Whole
from heroes.messages import Cohort, Plan, ServerState
from heroes.strategies.base import Duties, WholeModel


class FedProx(WholeModel):
    """FedAvg with a proximal term, and as many steps for each client as its time allows."""

    name: Literal["fedprox"] = "fedprox"
    """the strategy"""
    proximal: NotNegative = 0.01
    """mu: mu / 2 times the squared distance from the received weights is added to the loss; what
    objective.proximal asks for comes on top
    """
    partial_work: bool = True
    """whether clients do as many steps as end with the round, in which the average client does tau; else all
    do tau
    """
    tau_max: Whole = 100
    """most local steps, with partial_work"""

    tries = MappingProxyType({"strategy.proximal": (0.001, 0.1, 1.0)})
    colour = "#882255"
    marker = ">"

    def duties(self, probes: int) -> Duties:
        from heroes.client.terms import Proximal

        return Duties(terms=(Proximal(self.proximal),) if self.proximal else ())

    def assign(self, state: ServerState[Any], cohort: Cohort) -> Plan:
        if not self.partial_work:
            return super().assign(state, cohort)
        return self.own_taus(state, cohort, self.load(cohort), self.tau, max(self.tau, self.tau_max))
