"""What engines with workers share: the longest tasks go first, and tests of the model fill the gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from heroes.client.evaluation import Tally, chunks, testing, total, untested
from heroes.client.objectives import Objective
from heroes.client.training import one_thread
from heroes.data.examples import FederatedData
from heroes.errors import ExchangeError
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update
from heroes.transport.wire import Frame, read_update, task_frame
from heroes.transport.workers.queue import Queue

_STRETCH = 8  # assignments for each worker among which the longest goes first
_KEPT_BYTES = 2**30  # about what updates that came early may take
_TRIES = 2  # for a part of the test set
_PARTS = 4  # of the test set for each worker: small enough to fill the end of a round


class Workers(Protocol):
    """Workers that answer frames as `work.answer` does, wherever they are."""

    @property
    def size(self) -> int:
        """How many workers there are."""

    def do(self, queue: Queue, make: Callable[[int], Frame]) -> Iterator[tuple[int, Frame | str]]:
        """Answers to all places of the queue as they come; a string says why there is none."""


@dataclass(eq=False)
class _Test:
    """A model that is being tested: the chunks still to be counted, and the results of the others."""

    tensors: Tensors
    width: int
    sample: bool
    left: list[list[int]]
    found: dict[int, Tally] = field(default_factory=dict)
    error: str = ""

    def frame(self, part: list[int]) -> Frame:
        header = {"width": self.width, "chunks": part, "sample": self.sample}
        return Frame(header, {}, self.tensors)

    def note(self, part: list[int], answer: Frame | str) -> None:
        if isinstance(answer, str):
            self.error = answer
        else:
            self.left.remove(part)
            for chunk, statistics in zip(part, answer.header["tallies"], strict=True):
                self.found[chunk] = Tally(statistics, answer.group(str(chunk)))


def steps_and_width(assignment: Assignment) -> float:
    """A guess at the work: the FLOPs of a step grow with the square of the width."""
    return float(assignment.tau * assignment.selection.width**2)


def _update(assignment: Assignment, frame: Frame) -> Update | Lost:
    try:
        return read_update(frame)
    except ExchangeError as error:
        return Lost(assignment.client, str(error), "malformed", arrived=True)


class WorkerEngine:
    """Trains and tests by workers, testing beside the next round if it can.

    `cost` guesses how long an assignment takes, in any unit. The test set is counted `batch_size` examples at
    a time.
    """

    def __init__(
        self,
        workers: Workers,
        data: FederatedData,
        batch_size: int,
        cost: Callable[[Assignment], float],
        objective: Objective,
    ) -> None:
        self._workers = workers
        self._data, self._batch_size = data, batch_size
        self.cost = cost
        self.objective = objective
        self._tests: list[_Test] = []  # begun, and not asked for yet

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        """Train the plan; workers with nothing left to train go on with what is to be tested."""
        tests = [(test, part) for test in self._tests for part in test.left]
        costs = [self.cost(assignment) for assignment in plan] + [0.0] * len(tests)

        def frame(n: int) -> Frame:
            return (
                task_frame(make_task(plan[n]))
                if n < len(plan)
                else tests[n - len(plan)][0].frame(tests[n - len(plan)][1])
            )

        with one_thread():  # the other cores have work
            for place, answer in self._workers.do(Queue(costs, self._window(plan)), frame):
                if place >= len(plan):
                    test, part = tests[place - len(plan)]
                    test.note(part, answer)
                else:
                    yield (
                        Lost(plan[place].client, answer)
                        if isinstance(answer, str)
                        else _update(plan[place], answer)
                    )

    def score(self, tensors: Tensors, width: int, *, sample: bool = False) -> Callable[[], Score]:
        counted = list(chunks(self._data.tested(sample), self._batch_size))
        parts = min(len(counted), _PARTS * self._workers.size)
        test = _Test(tensors, width, sample, [counted[n::parts] for n in range(parts)])
        self._tests.append(test)
        return partial(self._finish, test)

    def _finish(self, test: _Test) -> Score:
        if test in self._tests:
            self._tests.remove(test)
        for _ in range(_TRIES):
            if parts := list(test.left):
                for n, answer in self._workers.do(
                    Queue([0.0] * len(parts), len(parts)), lambda n: test.frame(parts[n])
                ):
                    test.note(parts[n], answer)
        if test.left:
            raise untested(test.error)
        with testing():
            return total(self.objective, [test.found[chunk] for chunk in sorted(test.found)])

    def present(self) -> None:
        """Everybody can be asked."""

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Nobody keeps a model."""

    def _window(self, plan: Sequence[Assignment]) -> int:
        size, largest = self._workers.size, max(assignment.bytes_down for assignment in plan)
        return max(2 * size, min(_STRETCH * size, _KEPT_BYTES // max(1, 2 * largest)))
