"""Federated Dropout: a client trains channels of the dense model that are drawn at random in every round.

The draw is a client's own. All layers drop the same share of their channels in the same places, so that what
a shortcut adds belongs together. Elements are averaged over holders, and nothing is rescaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from heroes import seeds
from heroes.messages import Cohort, Integers, Selection, ServerState
from heroes.slices.cuts import Cut
from heroes.strategies.base import SameTau, StepLimit


@dataclass(frozen=True)
class DropoutMemory:
    """The seed of all draws."""

    seed: int

    def fits(self, begin: DropoutMemory) -> bool:
        """Whether a run that began so can have come to this."""
        return self == begin


State = ServerState[DropoutMemory]


class FedDropout(SameTau):
    """Random channels of the dense model, as many as a device affords, drawn anew in every round."""

    name: Literal["feddropout"] = "feddropout"
    """the strategy"""
    step_limit: StepLimit = "shared"
    """mu_max: seconds a local step may take; or what a step of the complete model takes on the fastest device
    class: shared is that of the dense model, the same for all strategies, own that of the model it trains
    """
    draw: Literal["client", "cohort"] = "client"
    """who draws: each client for itself, or all clients of a width and round the same channels"""

    colour = "#000000"
    marker = "X"

    def begin(self, seed: int) -> State:
        return ServerState(0, self.family.initial_weights(seed), DropoutMemory(seed))

    def choose_widths(self, cohort: Cohort) -> Integers:
        return self.afforded(cohort, self.step_limit)

    def select_for(self, client: int, state: State, width: int) -> Selection:
        who = (client,) if self.draw == "client" else ()
        return Selection(width, pieces=(seeds.number(state.memory.seed, "dropout", state.round + 1, *who),))

    def selection(self, width: int) -> Selection:
        return Selection(width)

    def cut(self, selection: Selection) -> Cut:
        """The channels that a number draws; the leading ones without a number."""
        whole, kept = (self.family.finest * width for width in (self.family.max_width, selection.width))
        order = np.arange(whole)
        for number in selection.pieces:
            order = np.random.default_rng(number).permutation(whole)
        return self.family.cut_pieces(tuple(sorted(order[:kept].tolist())))
