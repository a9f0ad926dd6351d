"""Clients in a pool of worker processes, one thread each: the same bits as one after the other, sooner."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
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


def steps_and_width(assignment: Assignment) -> float:
    """A guess at the work: the FLOPs of a step grow with the square of the width."""
    return float(assignment.tau * assignment.selection.width**2)


class ProcessEngine:
    """Trains tasks in worker processes that hold the data and a model of every width from one round to the next.

    `workers`: how many, 0 for one per core. `start`: "fork" (they share the parent's memory) or "spawn" (they begin anew, and
    model and transform must be importable); by default fork on Linux without an accelerator. `task_seconds`: a client that takes
    longer is given up. `cost` guesses how long an assignment takes, in any unit. Workers start with the first task; `close` ends
    them. The test set is counted `batch_size` at a time.
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
        finalize(self, self.pool.close)  # also when nobody calls `close`

    def run(self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]) -> Iterator[Update | Lost]:
        queue = Queue([self.cost(assignment) for assignment in plan], self._window(plan))
        with one_thread():  # the other cores have work
            for place, answer in self.pool.do(queue, lambda n: task_frame(make_task(plan[n]))):
                yield Lost(plan[place].client, answer) if isinstance(answer, str) else read_update(answer)

    def score(self, tensors: Tensors, width: int) -> Score:
        setup = self.pool.setup
        every = list(chunks(setup.data.test, setup.batch_size))
        count = min(self.pool.size, len(every))
        parts = [every[n::count] for n in range(count)]
        found: dict[int, Tally] = {}
        for _ in range(_TRIES):
            queue = Queue([0.0] * len(parts), len(parts))
            frames = [Frame({"width": width, "chunks": part}, tensors) for part in parts]
            failed = {}
            for n, answer in self.pool.do(queue, frames.__getitem__):
                if isinstance(answer, str):
                    failed[n] = answer
                else:
                    found.update(zip(parts[n], answer.header["tallies"], strict=True))
            if not failed:
                return total(found[chunk] for chunk in every)
            parts = [parts[n] for n in failed]
        raise TrainingError(f"the model could not be tested: {next(iter(failed.values()))}")

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
