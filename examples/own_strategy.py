"""A strategy of your own in one file: FedRolex, whose clients train a rolling window of channels.

Run it with `python examples/own_strategy.py`. Engines, resume, faults, defences and reports work as they are.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

import heroes
from heroes.messages import Cohort, Integers, Selection, ServerState
from heroes.slices.cuts import Cut, Slice
from heroes.strategies.base import SameTau, StepLimit


class FedRolex(SameTau):
    """A window of channels that rolls over the dense model, as wide as a device affords."""

    name: Literal["fedrolex"] = "fedrolex"
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
        axes = [(p.name, *scaled) for p in self.family.parameters for scaled in p.scaled_axes]
        smallest = math.gcd(*(unit for *_, parts in axes for unit in parts))
        kept: dict[str, tuple[tuple[int, torch.Tensor], ...]] = {p.name: () for p in self.family.parameters}
        for name, axis, parts in axes:
            windows, before = [], 0
            for unit in parts:  # gates of an LSTM roll together
                whole, start = unit * self.family.max_width, selection.pieces[0] * (unit // smallest)
                windows.append(before + (start + torch.arange(selection.width * unit)) % whole)
                before += whole
            kept[name] += ((axis, torch.cat(windows)),)
        return {name: Slice(name, window) for name, window in kept.items()}


def main() -> heroes.Run:
    return heroes.run(heroes.recipes.digits(rounds=30), strategy=FedRolex(tau=10))


if __name__ == "__main__":
    print(main().summary())
