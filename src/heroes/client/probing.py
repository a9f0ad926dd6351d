"""What a client measures of the loss around its model, from gradients on a few probe batches.

They are float32 whatever training is: differences of gradients would drown in the rounding of bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heroes.client.losses import CROSS_ENTROPY
from heroes.models.family import LocalModel
from heroes.models.statistics import at_hand

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Probe:
    """Losses and gradients on the probe batches at some plain weights."""

    weights: Mapping[str, Tensor]
    losses: tuple[float, ...]
    gradients: Tensor  # (batch, all weights in a row), double precision

    @property
    def gradient(self) -> Tensor:
        """The mean over the batches."""
        return self.gradients.mean(dim=0)


def probe(
    model: LocalModel,
    weights: Mapping[str, Tensor],
    batches: Sequence[Batch],
    mean_loss: Callable[[Tensor, Tensor], Tensor] = CROSS_ENTROPY.mean,
) -> Probe:
    """Load the weights into the plain model and take its gradient on every batch."""
    model.load(weights)
    at_hand(model.module)
    parameters = [p for p in model.parameters.values() if p.requires_grad]
    losses, rows = [], []
    for inputs, targets in batches:
        loss = mean_loss(model.exactly(inputs), targets)
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        flat = [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]
        rows.append(torch.cat([g.reshape(-1) for g in flat]).double().cpu())
        losses.append(float(loss.detach()))
    return Probe(weights, tuple(losses), torch.stack(rows))


def estimate(before: Probe, after: Probe) -> dict[str, float]:
    """L (smoothness), sigma^2 (variance), G^2 (gradient) and the loss's own Lipschitz constant.

    They are computed from probes at the received and at the trained weights; what cannot be told is left out.
    """
    moved = math.sqrt(
        sum(
            float((end.double() - before.weights[name].double()).square().sum())
            for name, end in after.weights.items()
        )
    )
    count = len(before.losses)
    spread = float((before.gradients - before.gradient).square().sum())
    rise = sum(after.losses) - sum(before.losses)
    found = {"gradient": float(before.gradients.square().sum(dim=1).mean())}
    if count > 1:
        found["variance"] = spread / (count - 1)
    if moved > 0:
        found["smoothness"] = float((after.gradient - before.gradient).norm()) / moved
        found["lipschitz"] = abs(rise) / count / moved
    return found
