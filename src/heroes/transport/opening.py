"""How an engine opens: its module has `opened(parts)`, a context manager that yields it and closes it.

`parts` are plain values, the same for all engines; each takes what it needs. Modules are imported when they
are needed, so that MPI and Flower stay optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, runtime_checkable

import torch

from heroes.client.training import Trainer
from heroes.contracts import Engine
from heroes.data.datasets import Progress
from heroes.data.examples import FederatedData
from heroes.fleet.wall import WallClock
from heroes.messages import Assignment
from heroes.transport.workers.engine import steps_and_width
from heroes.transport.workers.setup import Setup

Prepare = Callable[[str, int], tuple[Trainer, FederatedData]]
_MODULES = {
    "in_process": "heroes.transport.engines.in_process",
    "processes": "heroes.transport.engines.processes",
    "mpi": "heroes.transport.engines.mpi",
    "flower": "heroes.transport.engines.flower",
}


@dataclass(frozen=True)
class Parts:
    """What an engine opens from.

    Args:
        trainer: trains a client's task.
        data: everybody's examples, and the test set, which is counted `batch_size` examples at a time.
        config: the configuration as text, from which processes elsewhere set themselves up.
        prepare: makes what a client elsewhere trains with, from that text and the client's number; None if
            it cannot be made elsewhere, because the model or the data are the user's own.
        cohort: how many clients a round wants; `asked` is how many are asked for it, `least` how many must be
            there.
        workers: how many processes train; 0 is one for each core or GPU.
        devices: where they train; empty is where the trainer does.
        start: how processes start, "fork" or "spawn"; None is what suits this machine.
        task_seconds: a client that takes longer is given up.
        wait_seconds: for so long the first round waits for clients, and the run for a silent machine.
        down_bits: in how many bits tensors travel to clients.
        clock: tells real time, if time is real, and hears what clients took.
        cost: guesses the work of an assignment.
        widths: of the models that are handed out in the end, narrowest first.
        model_out: where a rank keeps the final model, `{rank}` being its number, and `model_width` which.
        progress: hears what is being waited for.
    """

    trainer: Trainer
    data: FederatedData
    batch_size: int = 500
    config: str = ""
    prepare: Prepare | None = None
    cohort: int = 1
    asked: int = 1
    least: int = 1
    workers: int = 0
    devices: tuple[torch.device, ...] = ()
    start: str | None = None
    task_seconds: float = 600.0
    wait_seconds: float = 300.0
    down_bits: int = 32
    clock: WallClock | None = None
    cost: Callable[[Assignment], float] = steps_and_width
    widths: tuple[int, ...] = ()
    model_out: str | None = None
    model_width: int | None = None
    progress: Progress | None = None

    def setup(self) -> Setup:
        """What a worker needs to train and to test."""
        trainer = self.trainer
        return Setup(trainer.family, trainer.settings, trainer.device, self.data, self.batch_size)


Opener = Callable[[Parts], AbstractContextManager[Engine]]
Follow = Callable[[str], Parts]


@runtime_checkable
class Job(Protocol):
    """An optional function of engine modules whose processes are started together, as by mpiexec."""

    def leading(self, follow: Follow) -> AbstractContextManager[Opener]:
        """Yields how to open the engine, in the process that leads.

        The others serve it here and never come out; `follow` makes their parts from the configuration as
        text.
        """


@contextmanager
def room(name: str, follow: Follow) -> Iterator[Opener]:
    """Yields how the engine of this name opens.

    The context surrounds the whole run: when it ends, however it ends, every process of a job hears of it.
    """
    module = import_module(_MODULES[name])
    if isinstance(module, Job):
        with module.leading(follow) as opener:
            yield opener
    else:
        yield module.opened
