"""The ports of the house: a strategy decides, an engine carries tasks to clients, a clock tells what a round
took.

Anything with these methods plugs in; nothing here needs to be subclassed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from heroes.messages import (
    Assignment,
    Cohort,
    Facts,
    Floats,
    Lost,
    Plan,
    Score,
    Selection,
    ServerState,
    Task,
    Tensors,
    Update,
)
from heroes.slices.cuts import Cut

M = TypeVar("M")


class Strategy(Protocol[M]):
    """A federated-learning scheme. It holds settings only; what it remembers lives in the state."""

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths it can serve, narrowest first; the last is the complete model."""

    def begin(self, seed: int) -> ServerState[M]:
        """The state before the first round."""

    def assign(self, state: ServerState[M], cohort: Cohort) -> Plan:
        """Width, blocks and tau for every client of the cohort, in the cohort's order."""

    def cut(self, selection: Selection) -> Cut:
        """Where the tensors of a selection lie in the global tensors."""

    def selection(self, width: int) -> Selection:
        """The part of the global model to use as a model of this width."""

    def aggregate(
        self, state: ServerState[M], plan: Plan, answers: Iterable[tuple[Assignment, Update]]
    ) -> tuple[ServerState[M], Facts]:
        """The state after the round, from the answers in plan order, taken one at a time."""


class Engine(Protocol):
    """How tasks reach clients and updates come back, who tests the model, and who gets it in the end.

    An engine opens and closes itself: see `heroes.transport.opening`.
    """

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        """Train every assignment; updates may come in any order. For one that will not come there may be a
        reason.
        """

    def score(self, tensors: Tensors, width: int) -> Callable[[], Score]:
        """Begin to test the model of this width with these tensors; call what is returned for how good it is.

        Until it is called the engine may test whenever that disturbs nothing, for example beside the next
        round.
        """

    def present(self) -> npt.NDArray[np.bool_] | None:
        """Which clients can be asked now, waiting for some if need be; None is everybody."""

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Give the final model, at one of these widths, to everybody who keeps one. When this returns, they
        have it; where nobody keeps one, nothing happens.
        """


@dataclass(frozen=True)
class Timing:
    """What a round took: T, and in plan order when the server heard of each client, at the latest at the end.

    `spent` is how long clients computed and how long things travelled, in seconds, where that was measured.
    """

    duration: float
    finished: Floats
    spent: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    @property
    def waiting(self) -> Floats:
        return self.duration - self.finished


class Clock(Protocol):
    """Tells how long a round took, and beforehand who will not be in, if that can be known. `wanted` updates
    end the round.
    """

    @property
    def name(self) -> str:
        """What its seconds are: virtual, or wall."""

    def absent(self, plan: Sequence[Assignment], wanted: int) -> tuple[Lost, ...]:
        """Called before a plan is carried out: the clients that need not be asked, because their updates
        would not count.
        """

    def elapse(self, plan: Sequence[Assignment], wanted: int) -> Timing:
        """The timing of a round that carried out this plan."""
