"""Clients in a pool of worker processes, one thread each: the same bits as one after the other, sooner."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from weakref import finalize

import torch

from heroes.client.training import Trainer
from heroes.data.examples import FederatedData
from heroes.errors import ConfigError
from heroes.messages import Assignment
from heroes.transport.opening import Parts
from heroes.transport.workers.engine import WorkerEngine, steps_and_width
from heroes.transport.workers.pool import Pool, cores
from heroes.transport.workers.setup import Setup


class ProcessEngine(WorkerEngine):
    """Trains tasks in worker processes, which keep the data and a model of every width.

    Workers start with the first task; `close` ends them.

    Args:
        workers: how many; 0 is one per core, or one per GPU.
        devices: where they train, shared out evenly; empty is where the trainer does.
        start: "fork" (they share the parent's memory) or "spawn" (they begin anew, and model and transform
            must be importable); by default fork on Linux without an accelerator.
        task_seconds: a client that takes longer is given up.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: FederatedData,
        batch_size: int = 500,
        *,
        workers: int = 0,
        devices: Sequence[torch.device] = (),
        start: str | None = None,
        task_seconds: float = 600.0,
        cost: Callable[[Assignment], float] = steps_and_width,
    ) -> None:
        if start not in (None, "fork", "spawn"):
            raise ConfigError(f"engine.start is {start!r}. Choices: fork, spawn")
        here = "fork" if sys.platform == "linux" and trainer.device.type == "cpu" else "spawn"
        setup = Setup(trainer.family, trainer.settings, trainer.device, data, batch_size)
        where = tuple(devices) or (trainer.device,)
        usual = cores() if where[0].type == "cpu" else len(where)
        self.pool = Pool(setup, workers or usual, start or here, task_seconds, where)
        super().__init__(self.pool, data, batch_size, cost, trainer.settings.objective)
        finalize(self, self.pool.close)  # also when nobody calls `close`

    def close(self) -> None:
        """End the workers."""
        self.pool.close()


@contextmanager
def opened(parts: Parts) -> Iterator[ProcessEngine]:
    """The engine; its workers end with the context."""
    engine = ProcessEngine(
        parts.trainer,
        parts.data,
        parts.batch_size,
        workers=parts.workers,
        devices=parts.devices,
        start=parts.start,
        task_seconds=parts.task_seconds,
        cost=parts.cost,
    )
    with closing(engine):
        yield engine
