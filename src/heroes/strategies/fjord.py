"""FjORD: every step of a client trains leading channels of the dense model, at a width drawn up to its own.

So channels are ordered by how much they matter, and every width is a model. With `distil` a step trains the
widest model on the labels, and the one that was drawn on what the widest says. Elements are averaged over the
clients whose own width holds them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from heroes.messages import Cohort, Integers
from heroes.strategies.base import Duties, SameTau, StepLimit


class Fjord(SameTau):
    """Ordered dropout: leading channels, at a width drawn for every step up to what a device affords."""

    name: Literal["fjord"] = "fjord"
    """the strategy"""
    step_limit: StepLimit = "shared"
    """mu_max: seconds a local step may take, on average over the widths that are drawn; or what a step of the
    complete model takes on the fastest device class: shared is that of the dense model, the same for all
    strategies, own that of the model it trains
    """
    distil: bool = False
    """whether narrower models learn what the widest says, which then learns the labels in every step"""

    tries = MappingProxyType({"strategy.distil": (True,)})
    colour = "#117733"
    marker = "<"

    def duties(self, probes: int) -> Duties:
        return Duties(any_width=1.0, distil=self.distil)

    def choose_widths(self, cohort: Cohort) -> Integers:
        return self.afforded(cohort, self.step_limit)
