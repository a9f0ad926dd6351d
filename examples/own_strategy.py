"""A strategy of your own in one file: FedRolex, whose clients train a rolling window of channels.

docs/own-strategy.md builds it step by step. Run it with `python examples/own_strategy.py`. Engines, resume,
faults, defences and reports work as they are.
"""

from __future__ import annotations

from typing import Any, Literal

import heroes
from heroes.messages import Cohort, Integers, Selection, ServerState
from heroes.slices.cuts import Cut
from heroes.strategies.base import SameTau, StepLimit


class FedRolex(SameTau):
    """A window of channels that rolls over the dense model, as wide as a device affords."""

    name: Literal["my_fedrolex"] = "my_fedrolex"
    step_limit: StepLimit = "shared"
    """seconds a local step may take; or what the complete model takes on the fastest device: shared, own"""

    colour = "#56B4E9"

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


def main() -> heroes.Run:
    return heroes.run(heroes.recipes.digits(rounds=30), strategy=FedRolex(tau=10))


if __name__ == "__main__":
    print(main().summary())
