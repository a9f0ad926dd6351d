"""Layers whose weight is a basis times coefficient blocks, each beside the dense layer it equals.

Convolutions and linear layers compute in one of two ways, equal up to rounding: `compose` builds the weight and runs the dense
layer; `factored` runs every input group through the basis and mixes the results. Everything else (recurrent layers, attention, a
user's own module) keeps its code and reads a weight that is composed whenever it is looked up.
"""

from __future__ import annotations

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from heroes.composition.compose import Layout, compose

COMPOSE, FACTORED = "compose", "factored"


def cheaper_path(layout: Layout, rank: int, width: int) -> str:
    """The way with fewer multiplications per output position; stacked axes are always composed."""
    if layout.output_parts > 1 or layout.input_parts > 1:
        return COMPOSE
    dense = layout.positions * width**2 * layout.inputs * layout.outputs
    factored = layout.basis_rows * rank * width + width**2 * rank * layout.outputs
    return FACTORED if factored < dense else COMPOSE


class _Factors(nn.Module):
    """What the composed layers share: the factors, the path, the weight."""

    def __init__(self, layout: Layout, basis: nn.Parameter, coefficient: nn.Parameter, path: str | None) -> None:
        super().__init__()
        self.layout = layout
        self.basis = basis  # (k*I, R)
        self.coefficient = coefficient  # (p*p, R, O)
        self.width = math.isqrt(coefficient.shape[0])
        self.path = path or cheaper_path(layout, basis.shape[1], self.width)

    def weight(self) -> Tensor:
        """The weight of the dense layer this one equals."""
        return compose(self.basis, self.coefficient, self.layout)

    def mixing(self) -> Tensor:
        """The coefficient as a (p*O, p*R) matrix: from what the basis made of every input group to all outputs."""
        p, rank, outputs = self.width, self.coefficient.shape[1], self.coefficient.shape[2]
        grid = self.coefficient.view(p, p, rank, outputs)  # a, b, r, o
        return grid.permute(1, 3, 0, 2).reshape(p * outputs, p * rank)


class ComposedLinear(_Factors):
    """Equals `nn.Linear` with the weight `weight()`."""

    def __init__(
        self,
        dense: nn.Linear,
        layout: Layout,
        basis: nn.Parameter,
        coefficient: nn.Parameter,
        path: str | None = None,
    ) -> None:
        super().__init__(layout, basis, coefficient, path)
        self.bias = dense.bias

    def forward(self, x: Tensor) -> Tensor:
        if self.path == COMPOSE:
            return F.linear(x, self.weight(), self.bias)
        groups = x.unflatten(-1, (self.width, self.layout.inputs)) @ self.basis  # ..., a, r
        return F.linear(groups.flatten(-2), self.mixing(), self.bias)


class ComposedConv2d(_Factors):
    """Equals `nn.Conv2d` with the weight `weight()`."""

    def __init__(
        self,
        dense: nn.Conv2d,
        layout: Layout,
        basis: nn.Parameter,
        coefficient: nn.Parameter,
        path: str | None = None,
    ) -> None:
        super().__init__(layout, basis, coefficient, path)
        self.bias = dense.bias
        self.stride, self.dilation = dense.stride, dense.dilation
        self.padding: Any = dense.padding if dense.padding_mode == "zeros" else 0
        self.padding_mode = dense.padding_mode
        self.margins = tuple(dense._reversed_padding_repeated_twice)

    def forward(self, x: Tensor) -> Tensor:
        if self.padding_mode != "zeros":
            x = F.pad(x, self.margins, mode=self.padding_mode)
        if self.path == COMPOSE:
            return F.conv2d(x, self.weight(), self.bias, self.stride, self.padding, self.dilation)
        layout, rank = self.layout, self.basis.shape[1]
        kernel = self.basis.view(layout.positions, layout.inputs, rank).permute(2, 1, 0)
        kernel = kernel.reshape(rank, layout.inputs, *layout.kernel).repeat(self.width, 1, 1, 1)
        groups = F.conv2d(x, kernel, None, self.stride, self.padding, self.dilation, groups=self.width)
        return F.conv2d(groups, self.mixing()[:, :, None, None], self.bias)


class _ComposedAttribute(nn.Module):
    """Computes a module's weight from its factors whenever the module looks it up (torch's parametrization)."""

    def __init__(self, layout: Layout, basis: nn.Parameter, coefficient: nn.Parameter) -> None:
        super().__init__()
        self.layout = layout
        self._start = (basis, coefficient)

    def forward(self, basis: Tensor, coefficient: Tensor) -> Tensor:
        return compose(basis, coefficient, self.layout)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return self._start


def compose_attribute(module: nn.Module, name: str, layout: Layout, basis: nn.Parameter, coefficient: nn.Parameter) -> None:
    """Make `module.<name>` the product of the factors, for any module."""
    parametrize.register_parametrization(module, name, _ComposedAttribute(layout, basis, coefficient), unsafe=True)
    originals: Any = module.parametrizations[name]  # type: ignore[index]
    originals.original0, originals.original1 = basis, coefficient  # the very objects, so that ties hold
    if isinstance(module, nn.RNNBase) and not getattr(module, "_heroes_refreshes", False):
        module._heroes_refreshes = True
        module._weights_have_changed = _never  # type: ignore[method-assign]  # the question alone composes every weight twice
        module.register_forward_pre_hook(_refresh_flat_weights)


def _refresh_flat_weights(module: nn.Module, _: Any) -> None:
    """Recurrent layers read their weights from a list made at construction: fill it with what they are now."""
    assert isinstance(module, nn.RNNBase)
    module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
    module.flatten_parameters()


def _never() -> bool:
    return False


def stacked(module: nn.Module, outputs: int = 1, inputs: int = 1) -> nn.Module:
    """Declare that a layer's output (or input) axis is stacked from equal parts, and return the layer.

    A fused projection `nn.Linear(e * width, 3 * e * width)` for Q, K and V is `stacked(nn.Linear(...), outputs=3)`: each part is
    then split into channel groups by itself. Torch's own recurrent layers and attention need no declaration.
    """
    module._heroes_parts = (outputs, inputs)  # type: ignore[assignment]
    return module


def stacked_parts(module: nn.Module, parameter: str) -> tuple[int, int]:
    """From how many equal parts the output and the input axis of this module's parameter are stacked."""
    if hasattr(module, "_heroes_parts"):
        outputs, inputs = module._heroes_parts  # type: ignore[misc]
        return int(outputs), int(inputs)
    if isinstance(module, nn.RNNBase) and not parameter.startswith("weight_hr"):
        gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1)
        deeper = parameter.startswith("weight_ih_l") and not parameter.startswith("weight_ih_l0")
        return gates, 2 if module.bidirectional and deeper else 1
    if isinstance(module, nn.MultiheadAttention) and parameter.startswith("in_proj"):
        return 3, 1
    return 1, 1


def has_own_forward(module: nn.Module) -> bool:
    """Whether torch code reads the parameters of this module's children directly, so that they must stay what they are."""
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    own_class = parametrize.type_before_parametrizations(module)
    return own_class.__module__.startswith("torch.nn") and not isinstance(module, containers)


def he_variance(module: nn.Module, layout: Layout, max_width: int, dense: Tensor) -> float:
    """The variance a composed full-width weight starts with: He's for convolutions and linear layers, else the module's own."""
    if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) and not isinstance(
        module, nn.modules.linear.NonDynamicallyQuantizableLinear
    ):
        return 2.0 / (layout.basis_rows * max_width)
    return float(dense.var()) if dense.numel() > 1 else 1.0
