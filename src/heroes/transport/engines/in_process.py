"""Clients one after the other, in this process: the reference that all engines match bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from heroes.client.evaluation import evaluate, testing
from heroes.client.training import Trainer, one_thread
from heroes.data.examples import FederatedData
from heroes.fleet.faults import Mask
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update
from heroes.transport.opening import Parts


class Scoring:
    """Tests models on one thread of this process, for engines whose clients do not test.

    Unless an engine says otherwise, everybody can be asked and nobody keeps the final model.
    """

    def __init__(self, trainer: Trainer, data: FederatedData, batch_size: int = 500) -> None:
        self.trainer = trainer
        self.data = data
        self.batch_size = batch_size

    def score(self, tensors: Tensors, width: int, *, sample: bool = False) -> Callable[[], Score]:
        def found() -> Score:
            with one_thread(), testing():
                trainer = self.trainer
                model, objective = trainer.loaded(tensors, width), trainer.settings.objective
                return evaluate(model, self.data.tested(sample), self.batch_size, trainer.device, objective)

        return found

    def present(self) -> Mask | None:
        """Everybody can be asked."""
        return None

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Nobody keeps a model."""


class InProcessEngine(Scoring):
    """Trains each task when its update is asked for, so that only one is in memory at a time."""

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        with one_thread():
            for assignment in plan:
                yield self.trainer.answer(
                    make_task(assignment), self.data.train, self.data.shares[assignment.client]
                )


@contextmanager
def opened(parts: Parts) -> Iterator[InProcessEngine]:
    """The engine; nothing needs closing."""
    yield InProcessEngine(parts.trainer, parts.data, parts.batch_size)


class FunctionEngine:
    """Answers with what a function makes of a task; None is a client that never answers.

    For tests and toys.
    """

    def __init__(
        self,
        answer: Callable[[Task], Update | Lost | None],
        score: Callable[[Tensors, int], Score] = lambda tensors, width: Score(0.0, {"accuracy": 0.0}),
    ) -> None:
        self.answer = answer
        self.judge = score

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        for assignment in plan:
            update = self.answer(make_task(assignment))
            if update is not None:
                yield update

    def score(self, tensors: Tensors, width: int, *, sample: bool = False) -> Callable[[], Score]:
        return partial(self.judge, tensors, width)

    def present(self) -> None:
        """Everybody can be asked."""

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Nobody keeps a model."""
