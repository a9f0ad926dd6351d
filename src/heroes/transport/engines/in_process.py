"""Clients one after the other, in this process: the reference that all engines match bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from heroes.client.training import one_thread
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update
from heroes.transport.opening import Parts
from heroes.transport.workers.scoring import Scoring


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

    def present(self) -> None:
        """Everybody can be asked."""


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
