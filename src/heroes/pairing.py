"""Match what came back with what was planned. The one place that notices lost, unknown or broken updates.

Updates are handed on in plan order whatever order they arrive in, so sums do not depend on the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from heroes.messages import Assignment, Lost, Update

Shapes = Mapping[str, tuple[int, ...]]


class Pairing:
    """Iterate once for (assignment, update) in plan order; then `lost` says who is missing and why, `answered` who is not."""

    def __init__(
        self, plan: Sequence[Assignment], updates: Iterator[Update | Lost], expected: Callable[[Assignment], Shapes]
    ) -> None:
        self.plan = plan
        self.updates = updates
        self.expected = expected
        self.lost: list[Lost] = []
        self.answered: dict[int, tuple[int, float]] = {}  # client: samples, loss

    def __iter__(self) -> Iterator[tuple[Assignment, Update]]:
        place = {assignment.client: n for n, assignment in enumerate(self.plan)}
        waiting: dict[int, Update | Lost] = {}
        turn = 0
        for update in self.updates:
            n = place.get(update.client)
            if n is None:
                self.lost.append(Lost(update.client, "unknown client"))
            elif isinstance(update, Update) and update.round != self.plan[n].round:
                self.lost.append(Lost(update.client, f"answers round {update.round} in round {self.plan[n].round}"))
            elif n < turn or n in waiting:
                self.lost.append(Lost(update.client, "answered twice"))
            else:
                waiting[n] = self._checked(self.plan[n], update)
            while turn in waiting:
                yield from self._hand_on(turn, waiting.pop(turn))
                turn += 1
        for n in range(turn, len(self.plan)):
            yield from self._hand_on(n, waiting.get(n, Lost(self.plan[n].client, "no answer")))

    def _hand_on(self, n: int, update: Update | Lost) -> Iterator[tuple[Assignment, Update]]:
        if isinstance(update, Lost):
            self.lost.append(update)
        else:
            self.answered[update.client] = update.samples, update.estimates.loss
            yield self.plan[n], update

    def _checked(self, assignment: Assignment, update: Update | Lost) -> Update | Lost:
        reason = None if isinstance(update, Lost) else fault(update, self.expected(assignment))
        return update if reason is None else Lost(update.client, reason)


def fault(update: Update, expected: Shapes) -> str | None:
    """Why an update must not enter the model, or None."""
    if not math.isfinite(update.estimates.loss):
        return f"loss is {update.estimates.loss}"
    if update.tensors.keys() != expected.keys():
        return f"tensor names differ: {sorted(update.tensors.keys() ^ expected.keys())[0]}"
    for name, tensor in update.tensors.items():
        if tuple(tensor.shape) != expected[name]:
            return f"{name} has shape {tuple(tensor.shape)} instead of {expected[name]}"
        if not math.isfinite(float(tensor.sum())) and not bool(torch.isfinite(tensor).all()):  # a sum may overflow
            return f"{name} is not finite"
    return None
