"""Testing in the process that leads, for engines whose clients do not test.

Unless an engine says otherwise, nobody keeps the final model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heroes.client.evaluation import evaluate, testing
from heroes.client.training import Trainer, one_thread
from heroes.data.examples import FederatedData
from heroes.messages import Score, Tensors


class Scoring:
    """Tests models on one thread of this process, `batch_size` examples at a time."""

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

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Nobody keeps a model."""
