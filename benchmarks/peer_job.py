"""The jobs that every side of the peers benchmark does, and how a side is spoken to.

`python -m benchmarks.peer_job SIDE JOB LAYOUT VARIANT ADDRESS` starts a side. It connects to the address,
does a round whenever it is told to, and answers with the seconds, the steps done and how far the global model
has moved from where it began.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Client

import torch
from torch import Tensor, nn

from heroes.models import cnn

SEED = 0
CLASSES = 10


def lenet(width: int) -> nn.Module:
    """LeNet-5 for 28x28 images; at width 1 the usual one."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6 * width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6 * width, 16 * width, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400 * width, 120 * width), nn.ReLU(), nn.Linear(120 * width, 84 * width), nn.ReLU()),
        nn.Linear(84 * width, CLASSES),
    )


@dataclass(frozen=True)
class Job:
    """FedAvg of one model: `cohort` of `clients` clients a round, each `epochs` passes over its `steps` /
    `epochs` batches.
    """

    build: Callable[[int], nn.Module]
    width: int
    shape: tuple[int, ...]
    clients: int
    cohort: int
    steps: int
    batch: int
    epochs: int
    learning_rate: float = 0.01
    momentum: float = 0.9

    @property
    def examples(self) -> int:
        """How many each client has; client n has those from n times this on."""
        return self.steps * self.batch // self.epochs

    def model(self, channels_last: bool) -> nn.Module:
        """The same weights for every side."""
        torch.manual_seed(SEED)
        model = self.build(self.width)
        return model.to(memory_format=torch.channels_last) if channels_last else model  # type: ignore[call-overload]

    def data(self, channels_last: bool) -> tuple[Tensor, Tensor]:
        """Noise around one centre per class: the same for every side, and something to learn."""
        generator = torch.Generator().manual_seed(SEED)
        targets = torch.randint(CLASSES, (self.clients * self.examples,), generator=generator)
        inputs = torch.randn(CLASSES, *self.shape, generator=generator)[targets].mul_(0.3)
        inputs += torch.randn(inputs.shape, generator=generator)
        return inputs.contiguous(memory_format=torch.channels_last) if channels_last else inputs, targets

    def moved(self, weights: Iterable[Tensor]) -> float:
        """How far these weights are from those of `model`."""
        pairs = zip(weights, self.model(False).parameters(), strict=True)
        return float(torch.stack([(now.detach() - before.detach()).norm() for now, before in pairs]).norm())


JOBS = {
    "overhead": Job(lenet, 1, (1, 28, 28), clients=1000, cohort=50, steps=5, batch=10, epochs=1),
    "compute": Job(cnn.build, 4, (3, 32, 32), clients=100, cohort=10, steps=20, batch=32, epochs=4),
}


@dataclass(frozen=True)
class Answer:
    """What a side says after a round; `moved` is 0 where there is no global model."""

    seconds: float
    steps: int
    moved: float


class Line:
    """A side's end of the connection to the benchmark."""

    def __init__(self, address: str) -> None:
        self.link = Client(address)

    def wanted(self) -> bool:
        """Wait; whether another round is wanted."""
        try:
            return bool(self.link.recv())
        except EOFError:  # the benchmark is gone
            return False

    def answer(self, seconds: float, steps: int, moved: float) -> None:
        self.link.send((seconds, steps, moved))


def main(side: str, job: str, layout: str, variant: str, address: str) -> None:
    importlib.import_module(f"benchmarks.peer_{side}").run(job, layout == "channels_last", variant, address)


if __name__ == "__main__":
    main(*sys.argv[1:])
