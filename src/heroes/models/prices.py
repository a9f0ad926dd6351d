"""What a step costs: its FLOPs, or what it takes by the prices of `paths`, as equivalent FLOPs.

A composed layer has fewer FLOPs than the dense one it equals, but more, smaller and slower operations. Prices
are seconds on the machine they were fitted on. They are made into FLOPs by one factor: the layers that have a
price take as many in all of the complete dense model as are counted there. So that model costs the same both
ways, and a device's FLOP/s mean what they did. Linear layers and convolutions have a price, composed or not;
everything else (recurrent layers, attention, norms, layers that are not trained) is charged by its FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from heroes.fleet.costs import MeanLoss, free, step_flops
from heroes.models.layers import ComposedConv2d, ComposedLinear
from heroes.models.paths import plain_seconds


@dataclass(frozen=True)
class Step:
    """A training step: its FLOPs, and of those in layers that have a price how many, and their seconds."""

    flops: int
    priced: int = 0
    seconds: float = 0.0

    @property
    def unit(self) -> float:
        """FLOPs in a second of the layers that have a price."""
        return self.priced / self.seconds if self.priced else 0.0

    def equivalent(self, unit: float) -> float:
        """FLOPs, with `unit` of them for every second of the layers that have a price."""
        return self.flops - self.priced + unit * self.seconds


def counted(module: nn.Module, inputs: Tensor, targets: Tensor, mean_loss: MeanLoss = free) -> Step:
    """A step of this module on this batch, by its FLOPs alone."""
    return Step(step_flops(module, inputs, targets, mean_loss))


def priced(module: nn.Module, inputs: Tensor, targets: Tensor, mean_loss: MeanLoss = free) -> Step:
    """A step of this module on this batch, with prices where layers have one."""
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(layer: nn.Module, given: tuple[Any, ...], made: Tensor) -> None:
        if given:
            calls.append((layer, given[0], made))

    hooks = [layer.register_forward_hook(note) for layer in module.modules() if _has_price(layer)]
    try:
        whole = step_flops(module, inputs, targets, mean_loss)
    finally:
        for hook in hooks:
            hook.remove()
    layers, seconds = 0, 0.0
    for layer, x, y in calls:
        alone = step_flops(layer, x.detach().requires_grad_(x.requires_grad), x)
        layers, seconds = layers + alone, seconds + _seconds(layer, x, y, alone)
    return Step(whole, layers, seconds)


Count = Callable[[nn.Module, Tensor, Tensor, MeanLoss], Step]
COSTS: Mapping[str, Count] = {"flops": counted, "priced": priced}


def _has_price(layer: nn.Module) -> bool:
    plain = type(layer) is nn.Linear or (type(layer) is nn.Conv2d and layer.groups == 1)
    trained = all(p.requires_grad for p in layer.parameters())
    return (plain or isinstance(layer, (ComposedLinear, ComposedConv2d))) and trained


def _seconds(layer: nn.Module, x: Tensor, y: Tensor, flops: int) -> float:
    """What a step of this layer takes, about."""
    if isinstance(layer, (ComposedLinear, ComposedConv2d)):
        outputs, inputs = (layer.width * size for size in (layer.layout.outputs, layer.layout.inputs))
        return layer.seconds(x.numel() // inputs, y.numel() // outputs)
    weight: Any = layer.weight
    return plain_seconds(weight.dim() > 2, flops, x.numel() + y.numel(), weight.numel())
