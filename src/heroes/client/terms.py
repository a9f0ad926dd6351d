"""Local terms: what a client adds to its loss at every step, given its model and the tensors it received."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from heroes.messages import Tensors
from heroes.models.family import LocalModel
from heroes.slices.compose import orthogonality

Term = Callable[[LocalModel, Tensors], Tensor]
"""a function of the model as it is now and of the tensors as received, under the same names"""


@dataclass(frozen=True)
class Proximal:
    """FedProx: mu / 2 * ||w - w_received||^2 over everything that is trained, factors or weights."""

    mu: float

    def __call__(self, model: LocalModel, received: Tensors) -> Tensor:
        moved = [
            (p - received[name].view(p.shape).to(p.device)).square().sum()
            for name, p in model.parameters.items()
            if p.requires_grad
        ]
        return self.mu / 2 * sum(moved, start=torch.zeros(()))


@dataclass(frozen=True)
class Orthogonality:
    """Keeps every basis from collapsing; zero if no factors are trained."""

    weight: float

    def __call__(self, model: LocalModel, received: Tensors) -> Tensor:
        return self.weight * sum((orthogonality(basis) for basis in model.bases), start=torch.zeros(()))
