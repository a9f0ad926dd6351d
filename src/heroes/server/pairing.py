"""Matches updates with the plan, and lets nothing pass but whole answers to open assignments.

The one place that notices lost, unknown or broken updates. Updates are handed on in plan order whatever order
they arrive in, so sums do not depend on the engine. Every refusal has a cause under which it is counted:
unknown, twice, round, nonce, names, shape, type, finite, samples, extras; engines add malformed, forged,
silent and failed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch import Tensor

from heroes.client.extras import Extra
from heroes.messages import Assignment, Lost, Tensors, Update
from heroes.planning.loads import done

MOST_SAMPLES = 2**40  # more than any client can hold
_ANSWERS = ("failed", "silent")  # causes that are the client's doing, not that of time or of its network


@dataclass(frozen=True)
class Expected:
    """What a right answer looks like: the shape of every tensor, its extras, the number of classes."""

    shapes: Mapping[str, tuple[int, ...]]
    sends: tuple[Extra, ...] = ()
    classes: int = 0
    dtype: torch.dtype = torch.float32

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())


class Pairing:
    """Iterate once for (assignment, update) in plan order.

    Under privacy nobody may learn from the model that an answer was refused: with `unchanged`, what a client
    was sent, such an answer is handed on as one that changes nothing, and `stood_in` has its client.
    """

    def __init__(
        self,
        plan: Sequence[Assignment],
        updates: Iterator[Update | Lost],
        expected: Callable[[Assignment], Expected],
        unchanged: Callable[[Assignment], Tensors] | None = None,
    ) -> None:
        self.plan = plan
        self.updates = updates
        self.expected = expected
        self.unchanged = unchanged
        self.stood_in: set[int] = set()
        self.lost: list[Lost] = []
        self.answered: dict[int, tuple[int, float | None]] = {}  # client: samples, loss
        self.measured: dict[int, Mapping[str, float]] = {}  # client: what else it told
        self._steps: dict[int, float | None] = {}  # client: what it did by its own clock

    def __iter__(self) -> Iterator[tuple[Assignment, Update]]:
        place = {assignment.client: n for n, assignment in enumerate(self.plan)}
        waiting: dict[int, Update | Lost] = {}
        strays: list[tuple[int, Lost]] = []
        turn = 0
        for update in self.updates:
            n = place.get(update.client)
            if n is None:
                self._refuse(update, "unknown client", "unknown")
            elif isinstance(update, Update) and (stray := astray(update, self.plan[n])):
                strays.append((n, Lost(update.client, *stray, arrived=True)))
            elif n < turn or n in waiting:
                self._refuse(update, "answered twice", "twice")
            else:
                waiting[n] = self._checked(self.plan[n], update)
            while turn in waiting:
                yield from self._hand_on(turn, waiting.pop(turn))
                turn += 1
        self.lost += [lost for _, lost in sorted(strays, key=itemgetter(0))]  # engines differ in the order
        for n in range(turn, len(self.plan)):
            yield from self._hand_on(n, waiting.get(n, Lost(self.plan[n].client, "no answer", "silent")))

    @property
    def counted(self) -> set[int]:
        """The clients whose answers were handed on, as they were or as no change."""
        return {*self.answered, *self.stood_in}

    @property
    def done(self) -> tuple[Assignment, ...]:
        """The plan as it was carried out, as far as clients told."""
        return tuple(done(a, self._steps.get(a.client)) for a in self.plan)

    def refuse(self, client: int, reason: str, cause: str) -> None:
        """Take back an answer that was handed on, because it does not count after all."""
        self.answered.pop(client, None)
        self.lost.append(Lost(client, reason, cause, arrived=True))

    def _refuse(self, update: Update | Lost, reason: str, cause: str) -> None:
        self.lost.append(Lost(update.client, reason, cause, arrived=isinstance(update, Update)))

    def _hand_on(self, n: int, update: Update | Lost) -> Iterator[tuple[Assignment, Update]]:
        if isinstance(update, Lost):
            self.lost.append(update)
            if self.unchanged is not None and (update.arrived or update.cause in _ANSWERS):
                a = self.plan[n]
                self.stood_in.add(a.client)
                yield a, Update(a.client, a.round, self.unchanged(a), samples=1, nonce=a.nonce)
        else:
            loss = update.loss
            self.answered[update.client] = update.samples, None if math.isnan(loss) else loss
            self.measured[update.client] = update.measured
            self._steps[update.client] = update.steps
            yield done(self.plan[n], update.steps), update

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
    why = _wrong_extra(update.extras, expected)
    return None if why is None else (why, "extras")


def cleaned(update: Update, expected: Expected) -> Update:
    """The update without measurements and residuals that cannot be right.

    Measurements must be finite and not negative, residuals of the right size.
    """
    if _possible(update.loss) and not update.measured and update.residuals is None:
        return update
    loss = update.loss if _possible(update.loss) else math.nan
    measured = {name: value for name, value in update.measured.items() if _possible(value)}
    residuals = update.residuals
    if residuals is not None and fault(replace(update, tensors=residuals, extras={}), expected) is not None:
        residuals = None
    return replace(update, loss=loss, measured=measured, residuals=residuals)


def _wrong_extra(extras: Tensors, expected: Expected) -> str | None:
    """What is wrong with an update's extras, if anything; extras may be missing."""
    wanted = {extra.name: extra for extra in expected.sends}
    for name, tensor in extras.items():
        if name not in wanted:
            return f"it sent {name!r}, which nobody asked for"
        if not isinstance(tensor, Tensor):
            return f"its {name} is a {type(tensor).__name__}, not a tensor"
        if (why := wanted[name].wrong(tensor, expected.parameters, expected.classes)) is not None:
            return why
    return None


def _possible(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= sys.float_info.max


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(tensor: Tensor) -> bool:
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())  # a sum may overflow
