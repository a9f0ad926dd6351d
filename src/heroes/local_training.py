"""The client's whole job: load a slice, run tau steps of SGD on its own data, say what it saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heroes.composition.compose import orthogonality
from heroes.data.examples import Examples
from heroes.messages import Estimates, Integers, Task, Update
from heroes.models.family import Family, LocalModel

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class LocalSettings:
    """How clients train, the same for all of them.

    `train_in`: "factors" trains basis and coefficient through the composition; "weights" trains the composed weights and
    decomposes them afterwards; "dense" is for schemes without composition, whose tensors are the weights.
    """

    batch_size: int = 32
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip: float | None = None
    regulariser: float = 0.0
    train_in: str = "factors"
    probes: int = 2


class Trainer:
    """Trains tasks, one after the other. Keeps one model per width."""

    def __init__(self, family: Family, settings: LocalSettings, device: torch.device | None = None) -> None:
        self.family = family
        self.settings = settings
        self.device = device or torch.device("cpu")
        self._models: dict[tuple[str, int], LocalModel] = {}

    def train(self, task: Task, examples: Examples, share: Integers) -> Update:
        """One client's round."""
        settings, assignment = self.settings, task.assignment
        width = assignment.selection.width
        with own_randomness(task.seed):
            rng = np.random.default_rng(task.seed)
            batches = draw_batches(share, settings.batch_size, assignment.tau, rng)
            probes = draw_batches(share, settings.batch_size, settings.probes, rng)
            probe_batches = [examples.batch(indices, self.device) for indices in probes]
            start = self.family.plain_weights(task.tensors)
            before = self._gradients(width, start, probe_batches)
            loss, end_tensors = self._descend(task, (examples.batch(i, self.device, rng) for i in batches))
            end = self.family.plain_weights(end_tensors)
            after = self._gradients(width, end, probe_batches)
        return Update(
            client=assignment.client,
            round=assignment.round,
            tensors=self._answer(task.tensors, end_tensors),
            samples=len(share),
            estimates=estimate(loss, before, after, start, end),
        )

    def model(self, kind: str, width: int) -> LocalModel:
        """The resident model of this kind ("dense" or "composed") and width."""
        key = kind, width
        if key not in self._models:
            make: Callable[[int], LocalModel] = getattr(self.family, kind)
            self._models[key] = make(width)
            self._models[key].module.to(self.device)
        return self._models[key]

    def _answer(self, sent: Mapping[str, Tensor], trained: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.family.factors(trained, sent) if self.settings.train_in == "weights" else trained

    def _descend(self, task: Task, batches: Iterator[Batch]) -> tuple[float, dict[str, Tensor]]:
        """Run SGD; the mean loss over the steps, and the tensors at the end."""
        settings, assignment = self.settings, task.assignment
        factors = settings.train_in == "factors"
        model = self.model("composed" if factors else "dense", assignment.selection.width)
        model.load(task.tensors if factors else self.family.plain_weights(task.tensors))
        model.module.train()
        parameters = [p for p in model.parameters.values() if p.requires_grad]
        optimiser = torch.optim.SGD(
            parameters, assignment.learning_rate, settings.momentum, weight_decay=settings.weight_decay, foreach=True
        )
        total = torch.zeros((), device=self.device)
        for inputs, targets in batches:
            optimiser.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model.module(inputs), targets)
            total += loss.detach()
            if settings.regulariser:
                loss = loss + settings.regulariser * sum(orthogonality(basis) for basis in model.bases)
            loss.backward()
            if settings.clip is not None:
                nn.utils.clip_grad_norm_(parameters, settings.clip, foreach=True)
            optimiser.step()
        return float(total) / assignment.tau, model.read()

    def _gradients(self, width: int, weights: Mapping[str, Tensor], batches: list[Batch]) -> list[Tensor]:
        """The gradient with respect to the plain weights on every batch, each as one long vector."""
        if not batches:
            return []
        model = self.model("dense", width)
        model.load(weights)
        model.module.eval()
        parameters = [p for p in model.parameters.values() if p.requires_grad]
        found = []
        for inputs, targets in batches:
            gradients = torch.autograd.grad(F.cross_entropy(model.module(inputs), targets), parameters, allow_unused=True)
            flat = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, parameters, strict=True)]
            found.append(torch.cat([g.reshape(-1) for g in flat]).double().cpu())
        return found


def estimate(
    loss: float,
    before: list[Tensor],
    after: list[Tensor],
    start: Mapping[str, Tensor],
    end: Mapping[str, Tensor],
) -> Estimates:
    """L, sigma^2 and G^2 from the probe gradients at the received weights and at the trained ones."""
    if not before:
        return Estimates(loss)
    g = torch.stack(before)
    mean = g.mean(dim=0)
    moved = math.sqrt(sum(float((end[n].double() - start[n].double()).square().sum()) for n in start))
    turned = float((torch.stack(after).mean(dim=0) - mean).norm())
    return Estimates(
        loss=loss,
        smoothness=turned / moved if moved > 0 else None,
        variance=float((g - mean).square().sum()) / (len(before) - 1) if len(before) > 1 else None,
        gradient=float(g.square().sum(dim=1).mean()),
    )


def draw_batches(share: Integers, batch_size: int, count: int, rng: np.random.Generator) -> list[Integers]:
    """`count` batches from a client's examples: shuffled passes, no example twice in a batch, smaller if it has fewer."""
    size = min(batch_size, len(share))
    per_pass = len(share) // size
    batches: list[Integers] = []
    while len(batches) < count:
        shuffled = rng.permutation(share)[: per_pass * size].reshape(per_pass, size)
        batches.extend(shuffled)
    return batches[:count]


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Whatever draws from torch's global generator (dropout) draws from this seed, and leaves no trace."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
