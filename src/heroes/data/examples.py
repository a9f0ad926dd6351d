"""Examples held as tensors, and the share of them that each client owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from heroes.errors import DataError
from heroes.messages import Integers


@dataclass(frozen=True)
class Examples:
    """Inputs and class labels, one row each."""

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise DataError(f"there are {len(self.inputs)} inputs but {len(self.targets)} targets; each input needs one target")
        if len(self.inputs) == 0:
            raise DataError("there are no examples; at least one is needed")
        if self.targets.dtype.is_floating_point:
            raise DataError(f"targets must be whole class numbers (torch.int64), not {self.targets.dtype}")

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Integers, device: torch.device) -> tuple[Tensor, Tensor]:
        """The inputs and targets at these indices."""
        where = torch.from_numpy(indices)
        return self.inputs[where].to(device), self.targets[where].to(device)


@dataclass(frozen=True)
class Shares:
    """Who owns what: client n owns the examples `order[starts[n]:starts[n + 1]]`."""

    order: Integers
    starts: Integers

    @staticmethod
    def of(parts: list[Integers]) -> Shares:
        sizes = [len(part) for part in parts]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return Shares(np.concatenate(parts).astype(np.int64), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, client: int) -> Integers:
        return self.order[self.starts[client] : self.starts[client + 1]]


@dataclass(frozen=True)
class FederatedData:
    """What a federation learns from: training examples shared over clients, and a test set at the server."""

    train: Examples
    test: Examples
    shares: Shares


def from_dataset(dataset: Dataset[Any]) -> Examples:
    """Examples from any torch Dataset whose items are (input, class)."""
    length = len(dataset)  # type: ignore[arg-type]
    pairs = [dataset[i] for i in range(length)]
    if not pairs:
        raise DataError("the dataset is empty; at least one example is needed")
    inputs = torch.stack([torch.as_tensor(x) for x, _ in pairs])
    return Examples(inputs, torch.tensor([int(y) for _, y in pairs]))
