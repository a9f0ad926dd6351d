"""FedRolex: a client trains a window of channels that rolls over the dense model from round to round.

All layers and clients roll alike, by the finest step that all layers have in common: one channel of the
narrowest, and the same share of the others. Elements are averaged over holders.
"""

from __future__ import annotations

from typing import Any, Literal

from heroes.messages import Cohort, Integers, Selection, ServerState
from heroes.slices.cuts import Cut
from heroes.strategies.base import SameTau, StepLimit


class FedRolex(SameTau):
    """A rolling window of the dense model's channels, as wide as a device affords."""

    name: Literal["fedrolex"] = "fedrolex"
    """the strategy"""
    step_limit: StepLimit = "shared"
    """mu_max: seconds a local step may take; or what a step of the complete model takes on the fastest device
    class: shared is that of the dense model, the same for all strategies, own that of the model it trains
    """

    colour = "#56B4E9"
    marker = "H"

    def choose_widths(self, cohort: Cohort) -> Integers:
        return self.afforded(cohort, self.step_limit)

    def selection(self, width: int, start: int = 0) -> Selection:
        return Selection(width, pieces=(start,))

    def select(self, state: ServerState[Any], width: int) -> Selection:
        return self.selection(width, state.round)

    def cut(self, selection: Selection) -> Cut:
        """All layers roll by the same share of their channels: one channel in the narrowest of them."""
        whole, window = (self.family.finest * width for width in (self.family.max_width, selection.width))
        (start,) = selection.pieces
        return self.family.cut_pieces(tuple((start + n) % whole for n in range(window)))
