"""The ports: protocols of everything that can be swapped in a run. Their defaults are in the other rooms.

In the order of a round: availability and a sampler say who takes part, a strategy decides what they do, an
engine carries tasks to them, a loss and a local optimiser train, a clock tells what the round took, a server
optimiser steps, metrics test the model, and a tracker hears of it. Anything with these methods plugs in;
nothing here needs to be subclassed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from heroes.messages import (
    Assignment,
    Cohort,
    Facts,
    Integers,
    Lost,
    Plan,
    RoundRecord,
    Score,
    Selection,
    ServerState,
    Task,
    Tensors,
    Timing,
    Update,
)
from heroes.slices.cuts import Cut

M = TypeVar("M")
Known = Mapping[int, tuple[float, ...]]  # what was measured of clients, as `ServerState.measured` has it


class Strategy(Protocol[M]):
    """A way to train a federation. It holds settings only; what it remembers lives in the state.

    `heroes.strategies.base.Strategy` is the class to build one on.
    """

    @property
    def name(self) -> str:
        """What it is called in messages, records and reports."""

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths it can serve, narrowest first; the last is the complete model."""

    def begin(self, seed: int) -> ServerState[M]:
        """The state before the first round.

        Args:
            seed: from which the first tensors are drawn.
        """

    def assign(self, state: ServerState[M], cohort: Cohort) -> Plan:
        """Width, blocks and tau for every client of the cohort, in the cohort's order.

        Args:
            state: what the server remembers.
            cohort: the clients of this round, and how fast they are.
        """

    def cut(self, selection: Selection) -> Cut:
        """Where the tensors of a selection lie in the global tensors.

        Args:
            selection: which part of the model it is.
        """

    def selection(self, width: int) -> Selection:
        """The part of the global model to use as a model of this width.

        Args:
            width: one of `widths`.
        """

    def aggregate(
        self, state: ServerState[M], plan: Plan, answers: Iterable[tuple[Assignment, Update]]
    ) -> tuple[ServerState[M], Facts]:
        """The state after the round, from the answers in plan order, taken one at a time.

        Args:
            state: before the round.
            plan: what `assign` gave.
            answers: every assignment whose update counts, with the update; they stream, so look at each once.
        """


@dataclass(frozen=True)
class Outcome:
    """What came of one client's part in a round, in plain numbers, for the sampler."""

    client: int
    samples: int
    loss: float | None  # None: it did not say
    seconds: float  # from the beginning of the round until its answer was in
    measured: Mapping[str, float] = field(default_factory=dict)  # what it told besides


class Sampler(Protocol):
    """Chooses who takes part. It holds settings only; what it remembers is `state.sampler`.

    That memory is None before the first round, and then whatever `remember` returned last. It must be
    something that JSON can hold: None, text, numbers, lists, and dictionaries whose keys are text.
    """

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def uniform(self) -> bool:
        """Whether it draws uniformly without replacement, which is what privacy's accountant counts on."""

    def sample(
        self, state: ServerState[Any], candidates: Integers, wanted: int, rng: np.random.Generator
    ) -> Integers:
        """At most `wanted` different clients out of the candidates, in any order; at least one.

        Args:
            state: what the server remembers; this sampler's part of it is `state.sampler`.
            candidates: the clients that can be asked, in ascending order.
            wanted: how many are asked for.
            rng: what to draw from, so that a seed repeats a run.
        """

    def remember(self, state: ServerState[Any], plan: Plan, outcomes: Sequence[Outcome]) -> Any:
        """Its memory after a round.

        Args:
            state: before the round.
            plan: who was asked to do what.
            outcomes: one for every client whose update counted, in plan order.
        """


class Availability(Protocol):
    """Who can be asked, and when."""

    def candidates(self, clients: int, seconds: float) -> Integers:
        """Which of this many clients can be asked at this time, in ascending order.

        Args:
            clients: how many there are.
            seconds: the time, since the run began.
        """

    def wait(self, needed: int, seconds: float) -> float:
        """How many seconds from this time it takes until so many clients can be asked.

        Args:
            needed: how many.
            seconds: the time, since the run began.
        """


class Devices(Protocol):
    """The clients' devices and links, as the server sees them."""

    def __len__(self) -> int:
        """How many clients there are."""

    def status(
        self, clients: Integers, round_number: int, attempt: int = 0, known: Known | None = None
    ) -> Cohort:
        """How fast these clients are at the start of a round, or of another attempt at it.

        Args:
            clients: their numbers.
            round_number: counts from 1.
            attempt: above 0 where the round was begun before.
            known: what was measured before; simulated devices depend on it only where plans go by it.
        """


class ServerOptimiser(Protocol):
    """Turns a round's mean change into a step of its own, element by element. It holds settings only."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of the moments it keeps for every element; each starts at zero."""

    def step(
        self, change: Tensor, moments: Mapping[str, Tensor], round_number: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The step to take instead of this change, and the moments after it; rounds count from 1.

        Args:
            change: of one tensor, the mean over clients.
            moments: of that tensor, by name.
            round_number: of the round that is being ended, from 1.
        """


class Loss(Protocol):
    """What clients minimise, from a model's outputs and the targets of a batch."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch as one number, which training lowers.

        Args:
            outputs: of the model, for a batch.
            targets: of the batch.
        """

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every prediction in a test; the test loss is their mean.

        Args:
            outputs: of the model, for a batch.
            targets: of the batch.
        """

    def aligned(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets as metrics read them: (m, classes) and (m,), or both of one shape.

        Args:
            outputs: of the model, for a batch.
            targets: of the batch.
        """

    def check(self, targets: Tensor) -> None:
        """Raise a DataError if this loss cannot learn from data with these targets.

        Args:
            targets: all of the training or of the test set.
        """


class Metric(Protocol):
    """How good a model is, as one number over the whole test set.

    The test set is counted in chunks, on whichever worker has time. Every chunk gives a statistic made of
    plain numbers and lists, so that it can travel as JSON; statistics are merged in the order of the chunks.
    """

    @property
    def name(self) -> str:
        """What it is called in records and reports."""

    @property
    def lower_is_better(self) -> bool:
        """Whether a good model has a low value."""

    def start(self, outputs: Tensor, targets: Tensor) -> Any:
        """The statistic of one chunk.

        Args:
            outputs: of the model, as the loss aligns them.
            targets: the same.
        """

    def merge(self, first: Any, second: Any) -> Any:
        """The statistic of two neighbouring chunks together.

        Args:
            first: that of the earlier chunk.
            second: that of the later one.
        """

    def finish(self, statistic: Any) -> float:
        """The value, from the statistic of all chunks.

        Args:
            statistic: all of them, merged.
        """


class LocalOptimiser(Protocol):
    """How a client moves its parameters."""

    def begin(self, parameters: Sequence[nn.Parameter]) -> Callable[[float], None]:
        """Start a round, with no memory of earlier ones.

        Call the returned function with the learning rate after every `backward`; it moves the parameters.

        Args:
            parameters: of the client's model.
        """


class Engine(Protocol):
    """Carries tasks to clients and updates back, tests the model, and hands it out in the end.

    An engine opens and closes itself: see `heroes.transport.opening`.
    """

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        """Train every assignment and yield updates in any order; a `Lost` says why one is missing.

        Args:
            plan: what each client is to do.
            make_task: gives an assignment its tensors; call it when a task is sent, not before.
        """

    def score(self, tensors: Tensors, width: int, *, sample: bool = False) -> Callable[[], Score]:
        """Begin to test the model of this width with these tensors; the returned function gives its score.

        Until that is called, the engine may test whenever it likes, for example beside the next round.

        Args:
            tensors: of the model, at this width.
            width: of the model.
            sample: test on `FederatedData.sample` only; it is used with `evaluation.sample` alone.
        """

    def present(self) -> npt.NDArray[np.bool_] | None:
        """Which clients can be asked now, after waiting for some if necessary; None is everybody."""

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Give the final model, at one of these widths, to clients that keep one; return when done.

        Args:
            tensors_of_width: gives the model at a width.
            widths: those that are served, narrowest first.
        """


class Tracker(Protocol):
    """Hears of a run as it happens, and tells others: a file, a dashboard."""

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        """A run begins, or goes on after the rounds `done`.

        Args:
            settings: the configuration, with dotted names.
            folder: the run folder, if there is one.
            done: the records of the rounds before.
        """

    def round(self, record: RoundRecord) -> None:
        """A round is over.

        Args:
            record: what is written down of it.
        """

    def end(self) -> None:
        """The run is over, however it ended."""


class Clock(Protocol):
    """Tells how long a round took and, if that can be known beforehand, whose update will be late.

    A round ends when `wanted` updates are in.
    """

    @property
    def name(self) -> str:
        """What its seconds are: virtual, or wall."""

    def lived(self, plan: Sequence[Assignment]) -> tuple[Assignment, ...]:
        """The plan as clients will carry it out, who may stop by their own clocks, if that can be known.

        Args:
            plan: of this round.
        """

    def absent(self, plan: Sequence[Assignment], wanted: int) -> tuple[Lost, ...]:
        """Before a plan is carried out: the clients not to ask, since their updates would be late.

        Args:
            plan: of this round.
            wanted: updates with which the round ends.
        """

    def elapse(self, plan: Sequence[Assignment], wanted: int) -> Timing:
        """After a round: what carrying out this plan took. Each measurement is returned once.

        Args:
            plan: of this round.
            wanted: updates with which the round ends.
        """
