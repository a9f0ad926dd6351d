"""Clients in a pool of worker processes, one thread each: the same bits as one after the other, sooner."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import finalize

from heroes.data.examples import FederatedData
from heroes.errors import ConfigError, TrainingError
from heroes.evaluation import Tally, chunks, total
from heroes.local_training import Trainer, one_thread
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update
from heroes.wire import Frame, read_update, task_frame
from heroes.workers.pool import Pool
from heroes.workers.queue import Queue
from heroes.workers.setup import Setup

_STRETCH = 8  # assignments for each worker among which the longest goes first
_KEPT_BYTES = 2**30  # about what updates that came early may take
_TRIES = 2  # for a part of the test set
_PARTS = 4  # of the test set for each worker: small enough to fill the end of a round


@dataclass(eq=False)
class _Test:
    """A model that is being tested: the chunks still to be counted, in parts, and what was found in the others."""

    tensors: Tensors
    width: int
    left: list[list[int]]
    found: dict[int, Tally] = field(default_factory=dict)
    error: str = ""

    def frame(self, part: list[int]) -> Frame:
        return Frame({"width": self.width, "chunks": part}, {}, self.tensors)

    def note(self, part: list[int], answer: Frame | str) -> None:
        if isinstance(answer, str):
            self.error = answer
        else:
            self.left.remove(part)
            self.found.update(zip(part, answer.header["tallies"], strict=True))


def steps_and_width(assignment: Assignment) -> float:
    """A guess at the work: the FLOPs of a step grow with the square of the width."""
    return float(assignment.tau * assignment.selection.width**2)


class ProcessEngine:
    """Trains tasks in worker processes that hold the data and a model of every width from one round to the next.

    `workers`: how many, 0 for one per core. `start`: "fork" (they share the parent's memory) or "spawn" (they begin anew, and
    model and transform must be importable); by default fork on Linux without an accelerator. `task_seconds`: a client that takes
    longer is given up. `cost` guesses how long an assignment takes, in any unit. Workers start with the first task; `close` ends
    them. The test set is counted `batch_size` at a time, if it can beside the next round.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: FederatedData,
        batch_size: int = 500,
        *,
        workers: int = 0,
        start: str | None = None,
        task_seconds: float = 600.0,
        cost: Callable[[Assignment], float] = steps_and_width,
    ) -> None:
        if start not in (None, "fork", "spawn"):
            raise ConfigError(f"engine.start is {start!r}. Choices: fork, spawn")
        here = "fork" if sys.platform == "linux" and trainer.device.type == "cpu" else "spawn"
        setup = Setup(trainer.family, trainer.settings, trainer.device, data, batch_size)
        self.pool = Pool(setup, workers or cores(), start or here, task_seconds)
        self.cost = cost
        self._tests: list[_Test] = []  # begun, and not asked for yet
        finalize(self, self.pool.close)  # also when nobody calls `close`

    def run(self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]) -> Iterator[Update | Lost]:
        """Train the plan; workers that find nothing left to train go on with what is to be tested."""
        tests = [(test, part) for test in self._tests for part in test.left]
        costs = [self.cost(assignment) for assignment in plan] + [0.0] * len(tests)

        def frame(n: int) -> Frame:
            return task_frame(make_task(plan[n])) if n < len(plan) else tests[n - len(plan)][0].frame(tests[n - len(plan)][1])

        with one_thread():  # the other cores have work
            for place, answer in self.pool.do(Queue(costs, self._window(plan)), frame):
                if place >= len(plan):
                    test, part = tests[place - len(plan)]
                    test.note(part, answer)
                else:
                    yield Lost(plan[place].client, answer) if isinstance(answer, str) else read_update(answer)

    def score(self, tensors: Tensors, width: int) -> Callable[[], Score]:
        count = len(chunks(self.pool.setup.data.test, self.pool.setup.batch_size))
        parts = min(count, _PARTS * self.pool.size)
        test = _Test(tensors, width, [list(range(count))[n::parts] for n in range(parts)])
        self._tests.append(test)
        return partial(self._finish, test)

    def _finish(self, test: _Test) -> Score:
        if test in self._tests:
            self._tests.remove(test)
        for _ in range(_TRIES):
            if parts := list(test.left):
                for n, answer in self.pool.do(Queue([0.0] * len(parts), len(parts)), lambda n: test.frame(parts[n])):
                    test.note(parts[n], answer)
        if test.left:
            raise TrainingError(f"the model could not be tested: {test.error}")
        return total(test.found[chunk] for chunk in sorted(test.found))

    def close(self) -> None:
        self.pool.close()

    def _window(self, plan: Sequence[Assignment]) -> int:
        largest = max(assignment.bytes_down for assignment in plan)
        return max(2 * self.pool.size, min(_STRETCH * self.pool.size, _KEPT_BYTES // max(1, 2 * largest)))


def cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
