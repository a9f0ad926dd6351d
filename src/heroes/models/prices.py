"""What a step costs: its FLOPs, or what it takes by the prices of `paths`, as equivalent FLOPs.

A composed layer has fewer FLOPs than the dense one it equals, but more, smaller and slower operations. Prices
are seconds on the machine they were fitted on. They are made into FLOPs by one factor: the layers that have a
price take as many in all of the complete dense model as are counted there. So that model costs the same both
ways, and a device's FLOP/s mean what they did. Linear layers and convolutions have a price, composed or not,
and so have normalisations, activations and pools, which have no FLOPs but take their time however low the
rank is. Everything else (recurrent layers, attention, layers that are not trained) is charged by its FLOPs.
The prices are those of float32; `python -m benchmarks.paths` measures and fits them anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from heroes.fleet.costs import MeanLoss, free, step_flops
from heroes.models.layers import ComposedConv2d, ComposedLinear
from heroes.models.paths import COLUMNS, COMPOSE, FACTORED, Prices, Work, cost

PLAIN = "plain"
CONVOLUTION: Prices = {
    COMPOSE: (4.3e-4, 5.7e-11, 7.6e-11, 3.4e-9),
    FACTORED: (4.5e-4, 4.7e-11, 9.0e-11, 1.7e-9, 5.5e-9),
    COLUMNS: (1.9e-4, 6.7e-11, 8.9e-11, 2.6e-9),
    PLAIN: (2.4e-4, 5.1e-11, 1.2e-9, 4.4e-9),
}
LINEAR: Prices = {
    COMPOSE: (1.4e-4, 7.5e-11, 9.4e-11, 0.0),
    FACTORED: (1.2e-4, 6.1e-11, 8.6e-11, 4.1e-10, 7.0e-9),
    PLAIN: (6.6e-5, 6.7e-11, 4.1e-10, 4.6e-10),
}
LIGHT: Prices = {"norm": (8.1e-5, 6.2e-10), "activation": (3.2e-5, 2.2e-10), "pool": (3.7e-5, 6.1e-10)}
"""Of layers without products: for the layer, and a value in or out."""
LANES = 16  # numbers that a processor works on at once: a rank that fills them in part takes no less
KINDS: Mapping[str, tuple[type[nn.Module], ...]] = {
    "norm": (nn.GroupNorm, nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d),
    "activation": (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh),
    "pool": (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
}
COMPOSED = (ComposedLinear, ComposedConv2d)


def composed_amounts(work: Work, path: str) -> tuple[float, ...]:
    """How much there is of everything that takes time in a composed layer, in the prices' order."""
    return replace(work, rank=math.ceil(work.rank / LANES) * LANES).amounts(path)


def plain_amounts(flops: float, values: int, weights: int) -> tuple[float, ...]:
    """The same of a dense layer. Values are those that go in and come out."""
    return 1.0, flops / 6, values, weights  # a product and its two gradients are six FLOPs


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
    return (plain or isinstance(layer, COMPOSED) or _light(layer) is not None) and trained


def _light(layer: nn.Module) -> str | None:
    return next((kind for kind, types in KINDS.items() if isinstance(layer, types)), None)


def _seconds(layer: nn.Module, x: Tensor, y: Tensor, flops: int) -> float:
    """What a step of this layer takes, about."""
    if isinstance(layer, COMPOSED):
        outputs, inputs = (layer.width * size for size in (layer.layout.outputs, layer.layout.inputs))
        positions = x.numel() // inputs, y.numel() // outputs
        work, path = layer.work(*positions), layer.path(*positions)
        return cost(composed_amounts(work, path), (CONVOLUTION if layer.layout.kernel else LINEAR)[path])
    values = x.numel() + y.numel()
    if light := _light(layer):
        return cost((1.0, values), LIGHT[light])
    weight: Any = layer.weight
    prices = CONVOLUTION if weight.dim() > 2 else LINEAR
    return cost(plain_amounts(flops, values, weight.numel()), prices[PLAIN])
