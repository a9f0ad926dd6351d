"""The ports of the house: a strategy decides, an engine carries tasks to clients, a clock tells what a round
took.

Anything with these methods plugs in; nothing here needs to be subclassed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

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

    def serve(self, width: int) -> Selection:
        """The part of the global model to use as a model of this width."""

    def aggregate(
        self, state: ServerState[M], plan: Plan, answers: Iterable[tuple[Assignment, Update]]
    ) -> tuple[ServerState[M], Facts]:
        """The state after the round, from the answers in plan order, taken one at a time."""


class Loss(Protocol):
    """What clients minimise, from a model's outputs and the targets of a batch."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What a step of training lowers: one number for the batch."""

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every answer, as it is tested; the test loss is the mean over all of them."""

    def aligned(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets as metrics read them: (m, classes) and (m,), or both of one shape."""

    def check(self, targets: Tensor) -> None:
        """Raise a DataError where data with these targets cannot be learned by it."""


class Metric(Protocol):
    """How good a model is, as one number over the whole test set.

    The test set is counted in chunks, by whoever has time: a chunk gives a statistic, made of plain numbers
    and lists so that it travels as JSON. Statistics are merged in the order of the chunks.
    """

    @property
    def name(self) -> str:
        """What it is called in records and reports."""

    @property
    def lower_is_better(self) -> bool:
        """Whether a good model has a low value."""

    def start(self, outputs: Tensor, targets: Tensor) -> Any:
        """The statistic of one chunk."""

    def merge(self, first: Any, second: Any) -> Any:
        """The statistic of two neighbours together."""

    def finish(self, statistic: Any) -> float:
        """The value, from the statistic of all chunks."""


class Optimiser(Protocol):
    """How a client moves its parameters."""

    def begin(self, parameters: Sequence[nn.Parameter]) -> Callable[[float], None]:
        """Start a round, without memory of earlier ones. Call what is returned after every `backward`, with
        the learning rate; it moves the parameters by their gradients.
        """


class Engine(Protocol):
    """How tasks reach clients and updates come back, and who tests the model."""

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

    def close(self) -> None:
        """Give back whatever the engine holds."""


@runtime_checkable
class Elsewhere(Protocol):
    """What an engine has besides, whose clients come and go as they like and may keep the final model."""

    def present(self) -> npt.NDArray[np.bool_] | None:
        """Which clients can be asked now, waiting for some if need be; None is everybody."""

    def hand_out(self, tensors: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Give every client that wants it the final model at its width, one of these; then they have it."""


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
