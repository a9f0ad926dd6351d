"""Layers whose weight is a basis times coefficient blocks, each beside the dense layer it equals.

Convolutions and linear layers take one of several paths (see `paths`). Everything else (recurrent layers,
attention, a user's own module) keeps its code and reads a weight that is composed whenever it is looked up.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from heroes.models.paths import COMPOSE, FACTORED, Work, quickest
from heroes.slices.compose import Layout, as_grid, compose


class _Factors(nn.Module):
    """What composed layers share: the factors, the weight, and the path, by default the quickest."""

    def __init__(
        self,
        dense: nn.Linear | nn.Conv2d,
        layout: Layout,
        basis: nn.Parameter,
        coefficient: nn.Parameter,
        path: str | None = None,
    ) -> None:
        super().__init__()
        for name, value in vars(dense).items():  # in_features, stride and all else that a model may read
            if not name.startswith("_"):
                setattr(self, name, value)
        self.bias = dense.bias
        self.layout = layout
        self.basis = basis  # (k*I, R)
        self.coefficient = coefficient  # (p*p, R, O), or the same as a grid
        self.width = math.isqrt(coefficient.numel() // (basis.shape[1] * layout.outputs))
        self.given_path = path

    @property
    def weight(self) -> Tensor:
        """The weight of the dense layer this one equals."""
        return compose(self.basis, self.coefficient, self.layout)

    def mixing(self) -> Tensor:
        """The coefficient as a (p*O, p*R) matrix, from the basis's results to all outputs."""
        grid = as_grid(self.coefficient, self.layout, self.basis.shape[1], self.width)
        return grid.permute(3, 1, 4, 0, 2).reshape(self.width * self.layout.outputs, -1)

    def path(self, inputs: int, outputs: int) -> str:
        """The path for so many input and output positions."""
        return self.given_path or quickest(self.work(inputs, outputs))

    def work(self, inputs: int, outputs: int) -> Work:
        """What there is to do for so many input and output positions."""
        bfloat16 = torch.is_autocast_enabled(self.basis.device.type)
        return Work(self.layout, self.basis.shape[1], self.width, inputs, outputs, bfloat16)


class ComposedLinear(_Factors):
    """Equals `nn.Linear` with the weight `weight`."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[:-1].numel()
        if self.path(rows, rows) == COMPOSE:
            return F.linear(x, self.weight, self.bias)
        groups = x.unflatten(-1, (self.width, self.layout.inputs)) @ self.basis  # ..., a, r
        return F.linear(groups.flatten(-2), self.mixing(), self.bias)


class ComposedConv2d(_Factors):
    """Equals `nn.Conv2d` with the weight `weight`."""

    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding_mode: str

    def __init__(
        self,
        dense: nn.Conv2d,
        layout: Layout,
        basis: nn.Parameter,
        coefficient: nn.Parameter,
        path: str | None = None,
    ) -> None:
        super().__init__(dense, layout, basis, coefficient, path)
        self.rim: Any = dense.padding if dense.padding_mode == "zeros" else 0
        self.margins = tuple(dense._reversed_padding_repeated_twice)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 3:  # an image without a batch axis
            alone: Tensor = self.forward(x[None])[0]
            return alone
        images, size = x.shape[0], self._output_size(x)
        path = self.path(images * x.shape[2] * x.shape[3], images * math.prod(size))
        if self.padding_mode != "zeros":
            x = F.pad(x, self.margins, mode=self.padding_mode)
        if path == COMPOSE:
            return F.conv2d(x, self.weight, self.bias, self.stride, self.rim, self.dilation)
        # positions, a*r
        groups = self._through_basis(x) if path == FACTORED else self._through_columns(x, size)
        mixed = F.linear(groups, self.mixing(), self.bias)
        return mixed.view(images, *size, -1).permute(0, 3, 1, 2)

    def _output_size(self, x: Tensor) -> tuple[int, int]:
        left, right, top, bottom = self.margins
        padded = x.shape[2] + top + bottom, x.shape[3] + left + right
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.layout.kernel, strict=True)]
        return (padded[0] - reach[0] - 1) // self.stride[0] + 1, (padded[1] - reach[1] - 1) // self.stride[
            1
        ] + 1

    def _through_basis(self, x: Tensor) -> Tensor:
        """The basis as a convolution, on every input group as an image of its own."""
        p, rank = self.width, self.basis.shape[1]
        kernel = self.basis.t().reshape(rank, *self.layout.kernel, -1).permute(0, 3, 1, 2)
        images = x.permute(0, 2, 3, 1).unflatten(-1, (p, -1))  # n, h, w, a, i
        images = images.permute(3, 0, 1, 2, 4).flatten(0, 1).permute(0, 3, 1, 2)
        found = F.conv2d(images, kernel, None, self.stride, self.rim, self.dilation).permute(0, 2, 3, 1)
        by_position: Tensor = found.unflatten(0, (p, -1)).permute(1, 2, 3, 0, 4)  # n, h, w, a, r
        return by_position.reshape(-1, p * rank)

    def _through_columns(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        """The basis as a matrix, on the patches that it sees."""
        if self.padding_mode == "zeros" and any(self.margins):
            x = F.pad(x, self.margins)
        where = _patches(size, x.shape[3], self.layout.kernel, self.stride, self.dilation).to(x.device)
        pixels = x.permute(0, 2, 3, 1).flatten(1, 2).index_select(1, where)  # n, position and k, a*i
        columns = pixels.view(-1, self.layout.positions, self.width, self.layout.inputs).transpose(1, 2)
        return (columns.reshape(-1, self.layout.basis_rows) @ self.basis).view(
            -1, self.width * self.basis.shape[1]
        )


@lru_cache(maxsize=256)
def _patches(
    size: tuple[int, int],
    row: int,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Tensor:
    """For every output pixel the input pixels under the kernel, in an image with rows of `row`."""
    down = torch.arange(size[0])[:, None] * stride[0] + torch.arange(kernel[0]) * dilation[0]  # y, k
    across = torch.arange(size[1])[:, None] * stride[1] + torch.arange(kernel[1]) * dilation[1]  # x, k
    return (down[:, None, :, None] * row + across[None, :, None, :]).flatten()


class _ComposedAttribute(nn.Module):
    """Computes a module's weight from its factors whenever it is read (torch's parametrization)."""

    def __init__(self, layout: Layout, basis: nn.Parameter, coefficient: nn.Parameter) -> None:
        super().__init__()
        self.layout = layout
        self._start = (basis, coefficient)

    def forward(self, basis: Tensor, coefficient: Tensor) -> Tensor:
        return compose(basis, coefficient, self.layout)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return self._start


def compose_attribute(
    module: nn.Module, name: str, layout: Layout, basis: nn.Parameter, coefficient: nn.Parameter
) -> None:
    """Make `module.<name>` the product of the factors, for any module."""
    parametrize.register_parametrization(
        module, name, _ComposedAttribute(layout, basis, coefficient), unsafe=True
    )
    originals: Any = module.parametrizations[name]  # type: ignore[index]
    originals.original0, originals.original1 = basis, coefficient  # the very objects, so that ties hold
    if isinstance(module, nn.RNNBase) and not getattr(module, "_heroes_refreshes", False):
        module._heroes_refreshes = True
        module._weights_have_changed = _never  # type: ignore[method-assign]  # the question alone composes every weight twice
        module.register_forward_pre_hook(_refresh_flat_weights)


def _refresh_flat_weights(module: nn.Module, _: Any) -> None:
    """Refill the list of weights that a recurrent layer made at construction and reads from."""
    assert isinstance(module, nn.RNNBase)
    module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
    module.flatten_parameters()


def _never() -> bool:
    return False


def is_plain(module: nn.Module) -> bool:
    """Whether a composed layer can stand in for this one.

    It must be nothing but a linear layer or a convolution, with its weight and bias and no hooks.
    """
    state = vars(module)
    hooked = any(value for name, value in state.items() if "_hooks" in name)
    extended = "forward" in state or state["_modules"] or state["_buffers"] or state.keys() & _NAMES
    return (
        type(module) in (nn.Linear, nn.Conv2d)
        and state["_parameters"].keys() == {"weight", "bias"}
        and not (hooked or extended)
    )


_NAMES = frozenset({"layout", "width", "given_path", "path", "seconds", "mixing", "rim", "margins"})
"""What composed layers call their own, so that a layer with such an attribute keeps its class."""


def has_own_forward(module: nn.Module) -> bool:
    """Whether torch reads the parameters of this module's children directly: they must stay."""
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    own_class = parametrize.type_before_parametrizations(module)
    return own_class.__module__.startswith("torch.nn") and not isinstance(module, containers)
