"""Tells who was asked and who has answered while a round goes on: an engine in front of any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from heroes.contracts import Engine
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update


class Listener(Protocol):
    """What a tracker may have besides: it hears of a round while it goes on."""

    def asked(self, plan: Sequence[Assignment]) -> None:
        """These clients are asked to train."""

    def answered(self, client: int, lost: str | None) -> None:
        """A client has answered; `lost` is the cause if it has nothing that could count."""


class TellingEngine:
    """Hands everything to the engine behind it, and tells a listener of it."""

    def __init__(self, engine: Engine, listener: Listener) -> None:
        self.engine = engine
        self.listener = listener

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        self.listener.asked(plan)
        for answer in self.engine.run(plan, make_task):
            self.listener.answered(answer.client, answer.cause if isinstance(answer, Lost) else None)
            yield answer

    def score(self, tensors: Tensors, width: int, *, sample: bool = False) -> Callable[[], Score]:
        return self.engine.score(tensors, width, sample=True) if sample else self.engine.score(tensors, width)

    def present(self) -> npt.NDArray[np.bool_] | None:
        return self.engine.present()

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        self.engine.hand_out(tensors_of_width, widths)
