"""Clients one after the other, in this process: the reference that every other engine must match bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from heroes.data.examples import FederatedData
from heroes.local_training import Trainer
from heroes.messages import Assignment, Task, Update


class InProcessEngine:
    """Trains each task when its update is asked for, so that only one is in memory at a time."""

    def __init__(self, trainer: Trainer, data: FederatedData) -> None:
        self.trainer = trainer
        self.data = data

    def run(self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]) -> Iterator[Update]:
        for assignment in plan:
            with one_thread():
                update = self.trainer.train(make_task(assignment), self.data.train, self.data.shares[assignment.client])
            yield update

    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums do not depend on how many threads share them: there is one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class FunctionEngine:
    """Answers with whatever a function makes of a task; None is a client that never answers. For tests and toys."""

    def __init__(self, answer: Callable[[Task], Update | None]) -> None:
        self.answer = answer

    def run(self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]) -> Iterator[Update]:
        for assignment in plan:
            update = self.answer(make_task(assignment))
            if update is not None:
                yield update

    def close(self) -> None:
        """Nothing is held."""
