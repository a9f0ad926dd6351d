"""pfl as its users write it: tensors in memory, its own FederatedAveraging on its SimulatedBackend.

Rounds are stepped by a callback. pfl tests every client before and after training in its first round whatever
it is told; that round is reported apart. With variant "2 processes" torchrun starts it, and each process
trains half of the clients.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peer_job import JOBS, Job, Line

NEVER = 10**9


class Network(nn.Module):
    """The module with the methods that pfl asks for; it counts its steps."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers
        self.steps = 0

    def forward(self, inputs: Tensor) -> Any:
        return self.layers(inputs)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.steps += 1
        return F.cross_entropy(self(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        return {
            "loss": Weighted(float(F.cross_entropy(self(inputs), targets, reduction="sum")), len(targets))
        }


class Stepper(TrainingProcessCallback):
    """Holds every round back until it is wanted; the first process asks, the others do as it does."""

    def __init__(self, job: Job, network: Network, address: str) -> None:
        self.job = job
        self.network = network
        self.several = get_framework_module().distributed.world_size > 1
        self.line = Line(address) if get_framework_module().distributed.global_rank == 0 else None
        self.start = 0.0

    def on_train_begin(self, *, model: Any) -> Metrics:
        self._wanted()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        seconds = time.perf_counter() - self.start
        steps = torch.tensor(self.network.steps)
        if self.several:
            torch.distributed.all_reduce(steps)
        if self.line is not None:
            self.line.answer(seconds, int(steps), self.job.moved(self.network.parameters()))
        return not self._wanted(), Metrics()

    def _wanted(self) -> bool:
        go = torch.tensor(self.line is not None and self.line.wanted())
        if self.several:
            torch.distributed.broadcast(go, 0)
        self.network.steps, self.start = 0, time.perf_counter()
        return bool(go)


def run(name: str, channels_last: bool, variant: str, address: str) -> None:
    torch.set_num_threads(2 if variant == "2 threads" else 1)
    job = JOBS[name]
    network = Network(job.model(channels_last))
    model = PyTorchModel(
        network,
        lambda parameters, lr: torch.optim.SGD(parameters, lr, job.momentum),
        torch.optim.SGD(network.parameters(), 1.0),
    )
    data = dataset(job, channels_last)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=NEVER,
            evaluation_frequency=NEVER,
            train_cohort_size=job.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=job.epochs,
            local_learning_rate=job.learning_rate,
            local_batch_size=job.batch,
            local_max_grad_norm=None,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Stepper(job, network, address)],
    )


def dataset(job: Job, channels_last: bool) -> FederatedDataset:
    inputs, targets = job.data(channels_last)
    slices = {
        n: list(pair)
        for n, pair in enumerate(zip(inputs.split(job.examples), targets.split(job.examples), strict=True))
    }
    return FederatedDataset.from_slices(slices, get_user_sampler("minimize_reuse", list(slices)))
