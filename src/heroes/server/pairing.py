"""Match what came back with what was planned, and let nothing pass that is not a whole answer to an open
assignment.

The one place that notices lost, unknown or broken updates. Updates are handed on in plan order whatever order
they arrive in, so sums do not depend on the engine. Every refusal has a cause under which it is counted:
unknown, twice, round, nonce, names, shape, type, finite, samples, labels; engines add malformed, silent and
failed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heroes.messages import Assignment, Estimates, Lost, Update

MOST_SAMPLES = 2**40  # more than any client can hold


@dataclass(frozen=True)
class Expected:
    """What a right answer looks like: the shape of every tensor, the size of a gradient sent along, the
    number of classes.
    """

    shapes: Mapping[str, tuple[int, ...]]
    gradient: int | None = None
    classes: int = 0
    dtype: torch.dtype = torch.float32


class Pairing:
    """Iterate once for (assignment, update) in plan order; then `lost` says who is missing and why,
    `answered` who is not.
    """

    def __init__(
        self,
        plan: Sequence[Assignment],
        updates: Iterator[Update | Lost],
        expected: Callable[[Assignment], Expected],
    ) -> None:
        self.plan = plan
        self.updates = updates
        self.expected = expected
        self.lost: list[Lost] = []
        self.answered: dict[int, tuple[int, float | None]] = {}  # client: samples, loss

    def __iter__(self) -> Iterator[tuple[Assignment, Update]]:
        place = {assignment.client: n for n, assignment in enumerate(self.plan)}
        waiting: dict[int, Update | Lost] = {}
        turn = 0
        for update in self.updates:
            n = place.get(update.client)
            if n is None:
                self._refuse(update, "unknown client", "unknown")
            elif isinstance(update, Update) and (stray := astray(update, self.plan[n])):
                self._refuse(update, *stray)
            elif n < turn or n in waiting:
                self._refuse(update, "answered twice", "twice")
            else:
                waiting[n] = self._checked(self.plan[n], update)
            while turn in waiting:
                yield from self._hand_on(turn, waiting.pop(turn))
                turn += 1
        for n in range(turn, len(self.plan)):
            yield from self._hand_on(n, waiting.get(n, Lost(self.plan[n].client, "no answer", "silent")))

    def refuse(self, client: int, reason: str, cause: str) -> None:
        """Take back an answer that was handed on."""
        self.answered.pop(client, None)
        self.lost.append(Lost(client, reason, cause, arrived=True))

    def _refuse(self, update: Update | Lost, reason: str, cause: str) -> None:
        self.lost.append(Lost(update.client, reason, cause, arrived=isinstance(update, Update)))

    def _hand_on(self, n: int, update: Update | Lost) -> Iterator[tuple[Assignment, Update]]:
        if isinstance(update, Lost):
            self.lost.append(update)
        else:
            loss = update.estimates.loss
            self.answered[update.client] = update.samples, None if math.isnan(loss) else loss
            yield self.plan[n], update

    def _checked(self, assignment: Assignment, update: Update | Lost) -> Update | Lost:
        if isinstance(update, Lost):
            return update
        expected = self.expected(assignment)
        found = fault(update, expected)
        return cleaned(update, expected) if found is None else Lost(update.client, *found, arrived=True)


def astray(update: Update, assignment: Assignment) -> tuple[str, str] | None:
    """Why an update does not answer this assignment, and the kind of cause; None if it does."""
    if update.round != assignment.round:
        return f"answers round {update.round} in round {assignment.round}", "round"
    return (
        None
        if update.nonce == assignment.nonce
        else ("answers another assignment: its nonce is wrong", "nonce")
    )


def fault(update: Update, expected: Expected) -> tuple[str, str] | None:
    """Why an update must not enter the model, and the kind of cause; None if it may."""
    if update.tensors.keys() != expected.shapes.keys():
        return (
            f"tensor names differ: {sorted(map(str, update.tensors.keys() ^ expected.shapes.keys()))[0]}",
            "names",
        )
    if not _whole(update.samples) or not 1 <= update.samples <= MOST_SAMPLES:
        return f"it says it has {update.samples!r} samples", "samples"
    if not all(_whole(label) and 0 <= label < expected.classes for label in update.labels):
        return f"its labels are not classes from 0 to {expected.classes - 1}", "labels"
    for name, tensor in update.tensors.items():
        if not isinstance(tensor, Tensor) or tensor.dtype != expected.dtype:
            return (
                f"{name} is {getattr(tensor, 'dtype', type(tensor).__name__)} instead of {expected.dtype}",
                "type",
            )
        if tuple(tensor.shape) != expected.shapes[name]:
            return f"{name} has shape {tuple(tensor.shape)} instead of {expected.shapes[name]}", "shape"
        if not _finite(tensor):
            return f"{name} is not finite", "finite"
    return None


def cleaned(update: Update, expected: Expected) -> Update:
    """The update without what is beside the model and cannot be: estimates that are no finite number from 0
    on, a gradient or residuals of the wrong size.
    """
    e = update.estimates
    loss = e.loss if _possible(e.loss) else math.nan
    others = [
        value if _possible(value) else None for value in (e.smoothness, e.variance, e.gradient, e.lipschitz)
    ]
    gradient = update.gradient
    if gradient is not None and not (tuple(gradient.shape) == (expected.gradient,) and _finite(gradient)):
        gradient = None
    residuals = update.residuals
    if residuals is not None and fault(replace(update, tensors=residuals, labels=()), expected) is not None:
        residuals = None
    return replace(update, estimates=Estimates(loss, *others), gradient=gradient, residuals=residuals)


def _possible(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= sys.float_info.max


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(tensor: Tensor) -> bool:
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())  # a sum may overflow
