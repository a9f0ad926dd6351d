"""What clients add to their loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from heroes.messages import Tensors
from heroes.models.family import LocalModel
from heroes.slices.compose import orthogonality

Term = Callable[[LocalModel, Tensors], Tensor]


@dataclass(frozen=True)
class Orthogonality:
    """Keeps every basis near orthonormal columns."""

    weight: float

    def __call__(self, model: LocalModel, received: Tensors) -> Tensor:
        return self.weight * sum((orthogonality(basis) for basis in model.bases), torch.zeros(()))
