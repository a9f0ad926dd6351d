"""Clients one after the other, in this process: the reference that every other engine must match bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from heroes.data.examples import FederatedData
from heroes.evaluation import evaluate
from heroes.local_training import Trainer, one_thread
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update


class InProcessEngine:
    """Trains each task when its update is asked for, so that only one is in memory at a time. Tests `batch_size` at a time."""

    def __init__(self, trainer: Trainer, data: FederatedData, batch_size: int = 500) -> None:
        self.trainer = trainer
        self.data = data
        self.batch_size = batch_size

    def run(self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]) -> Iterator[Update | Lost]:
        with one_thread():
            for assignment in plan:
                yield self.trainer.answer(make_task(assignment), self.data.train, self.data.shares[assignment.client])

    def score(self, tensors: Tensors, width: int) -> Callable[[], Score]:
        def found() -> Score:
            with one_thread():
                return evaluate(self.trainer.loaded(tensors, width), self.data.test, self.batch_size, self.trainer.device)

        return found

    def close(self) -> None:
        """Nothing is held."""


class FunctionEngine:
    """Answers with whatever a function makes of a task; None is a client that never answers. For tests and toys."""

    def __init__(
        self,
        answer: Callable[[Task], Update | Lost | None],
        score: Callable[[Tensors, int], Score] = lambda tensors, width: Score(0.0, 0.0),
    ) -> None:
        self.answer = answer
        self.judge = score

    def run(self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]) -> Iterator[Update | Lost]:
        for assignment in plan:
            update = self.answer(make_task(assignment))
            if update is not None:
                yield update

    def score(self, tensors: Tensors, width: int) -> Callable[[], Score]:
        return partial(self.judge, tensors, width)

    def close(self) -> None:
        """Nothing is held."""
