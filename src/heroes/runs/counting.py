"""An engine that says how many clients of a round have answered, for whoever watches a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from heroes.contracts import Engine
from heroes.federation import Federation
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update

OnClient = Callable[[int, int, int], None]
"""called with a round, how many of the clients that were asked have answered, and how many were asked"""


def counted(federation: Federation, tell: OnClient | None) -> Federation:
    """The same federation, which tells of every answer."""
    return federation if tell is None else replace(federation, engine=_Counted(federation.engine, tell))


@dataclass(frozen=True)
class _Counted:
    """The engine behind it, with its answers counted."""

    engine: Engine
    tell: OnClient

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        waited_for = {a.client for a in plan}
        self.tell(plan[0].round, 0, len(plan))
        for answer in self.engine.run(plan, make_task):
            waited_for.discard(answer.client)
            self.tell(plan[0].round, len(plan) - len(waited_for), len(plan))
            yield answer

    def score(self, tensors: Tensors, width: int, *, sample: bool = False) -> Callable[[], Score]:
        return self.engine.score(tensors, width, sample=sample)

    def present(self) -> npt.NDArray[np.bool_] | None:
        return self.engine.present()

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        self.engine.hand_out(tensors_of_width, widths)
