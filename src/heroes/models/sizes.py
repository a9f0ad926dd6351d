"""How large a family is and what a step costs, dense and composed, for each width and each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from heroes.fleet.costs import flops_by_module
from heroes.models.family import Family, Parameter


@dataclass(frozen=True)
class WidthSize:
    """A model of one width: parameters and FLOPs of a step, dense and composed."""

    width: int
    dense_parameters: int
    composed_parameters: int
    dense_flops: int
    composed_flops: int


@dataclass(frozen=True)
class LayerSize:
    """One parameter at full width. FLOPs are its module's, given once, at its first weight."""

    name: str
    kind: str
    shape: tuple[int, ...]
    rank: int
    dense_parameters: int
    composed_parameters: int
    dense_flops: int | None
    composed_flops: int | None


def by_width(family: Family, inputs: Tensor, targets: Tensor) -> list[WidthSize]:
    """Every width, narrowest first."""
    return [
        WidthSize(
            width,
            sum(math.prod(shape) for shape in family.weight_shapes(width).values()),
            sum(math.prod(shape) for shape in family.tensor_shapes(width).values()),
            flops_by_module(family.dense(width).module, inputs, targets)[""],
            flops_by_module(family.composed(width).module, inputs, targets)[""],
        )
        for width in range(1, family.max_width + 1)
    ]


def by_layer(family: Family, inputs: Tensor, targets: Tensor) -> list[LayerSize]:
    """Every parameter of the complete model, in the model's order."""
    width = family.max_width
    dense = flops_by_module(family.dense(width).module, inputs, targets)
    composed = flops_by_module(family.composed(width).module, inputs, targets)
    shapes = family.weight_shapes(width)
    named: set[str] = set()
    sizes = []
    for p in family.parameters:
        path = p.sites[0][0]
        flops = (None, None) if path in named else (dense.get(path), composed.get(path))
        named.add(path)
        sizes.append(_layer(p, shapes[p.name], width, *flops))
    return sizes


def _layer(
    p: Parameter, shape: tuple[int, ...], width: int, dense: int | None, composed: int | None
) -> LayerSize:
    held = sum(math.prod(tensor) for tensor in p.tensor_shapes(width).values())
    return LayerSize(p.name, p.kind, shape, p.rank, math.prod(shape), held, dense, composed)
