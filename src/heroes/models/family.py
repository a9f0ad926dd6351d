"""A model family: `build(width) -> nn.Module`, read by its shapes.

Building at two widths and comparing shapes tells which axes scale. Three kinds of parameter follow:
*composed* (inputs and outputs scale), *grouped* (one axis scales) and *shared* (none). The family knows the
global tensors, where a selection lies in them, and how to make a dense or a composed module of any width.
Nothing is declared by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

from heroes.messages import Selection
from heroes.models import layers
from heroes.models.parameters import COMPOSED, GROUPED, SHARED, Build, Parameter, built, detect, group_indices
from heroes.models.statistics import full_name, kept_names
from heroes.slices.blocks import grid_selection
from heroes.slices.compose import Layout, compose, decompose, empty_factors, initial_factors, mean_square
from heroes.slices.cuts import Cut, Slice

__all__ = ["COMPOSED", "GROUPED", "SHARED", "Build", "Family", "LocalModel", "Parameter"]


class LocalModel:
    """A module that a client trains, and the names of its tensors, whose shapes may differ there."""

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        bases: Sequence[nn.Parameter] = (),
    ) -> None:
        self.module = module
        self.parameters = dict(parameters)
        self.shapes = dict(shapes or {name: tuple(p.shape) for name, p in parameters.items()})
        self.bases = tuple(bases)
        self.bfloat16 = False
        self._modules = tuple(module.modules())
        self._has_lstm = any(isinstance(each, nn.LSTM) for each in self._modules)
        self._starts = [
            (holder, name, full_name(path, name), None if value is None else value.clone())
            for path, holder in module.named_modules()
            for name, value in holder._buffers.items()
        ]

    def __call__(self, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
        """What the module makes of a batch, computed in bfloat16 if it is set; outputs are float32.

        With `tensors` it computes with these instead of its own, and gradients flow back to them.
        """
        if not self.bfloat16:
            return self.exactly(inputs, tensors)
        with torch.autocast(inputs.device.type, torch.bfloat16), self._able(inputs.device):
            outputs = self.exactly(inputs, tensors)
        rounded = isinstance(outputs, Tensor) and outputs.dtype == torch.bfloat16
        return outputs.float() if rounded else outputs

    def exactly(self, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
        """The same in float32; a weight that the module looks up more than once is composed once."""
        with parametrize.cached():
            outputs: Tensor = (
                self.module(inputs)
                if tensors is None
                else functional_call(self.module, self._by_path(tensors), (inputs,))
            )
        return outputs

    @contextmanager
    def _able(self, device: torch.device) -> Iterator[None]:
        """Without oneDNN where it can do no LSTM in bfloat16, on processors without AVX-512."""
        used = self._has_lstm and device.type == "cpu" and torch.backends.mkldnn.is_available()
        unable = used and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(before and not unable)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(before)

    def _by_path(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names and in the shapes that the module has for them."""
        return {
            path: tensors[self._names[parameter]].view(parameter.shape)
            for path, parameter in self.module.named_parameters()
        }

    @cached_property
    def _names(self) -> dict[nn.Parameter, str]:
        return {parameter: name for name, parameter in self.parameters.items()}

    def train(self) -> None:
        """Compute as in training from here on; torch's own `train` takes long even where nothing changes."""
        if not all(module.training for module in self._modules):
            self.module.train()

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take these tensors; buffers that are not among them are again what `build` made, whoever was
        trained here before.
        """
        for holder, name, path, start in self._starts:
            holder._buffers[name] = _again(tensors.get(path, start), holder._buffers.get(name))
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[name].view(parameter.shape))

    @torch.no_grad()
    def read(self) -> dict[str, Tensor]:
        return {name: _plain(self.parameters[name], shape) for name, shape in self.shapes.items()}


def _again(start: Tensor | None, now: Tensor | None) -> Tensor | None:
    """A buffer with this value, where and in the type that it is now."""
    if start is None:
        return None
    return start.clone() if now is None else start.to(now, copy=True)


def _plain(parameter: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A copy of the parameter in this shape, in the ordinary memory layout."""
    return torch.empty(shape, dtype=parameter.dtype).copy_(parameter.detach().reshape(shape))


class Family:
    """Everything that depends on the model's shapes. Widths run from 1 to `max_width`."""

    def __init__(self, build: Build, max_width: int, rank_ratio: float = 1.0) -> None:
        self.build = build
        self.max_width = max_width
        self.rank_ratio = rank_ratio
        self.parameters = detect(build, max_width, rank_ratio)
        self._cut = lru_cache(maxsize=4096)(self._make_cut)
        self._piece_cut = lru_cache(maxsize=64)(self._make_piece_cut)
        self._weight_cut = lru_cache(maxsize=4096)(self._make_weight_cut)

    def __reduce__(self) -> tuple[type[Family], tuple[Build, int, float]]:
        """A copy in another process is made anew from the user's function."""
        return Family, (self.build, self.max_width, self.rank_ratio)

    def module(self, width: int, seed: int = 0) -> nn.Module:
        """The user's module, initialised from the seed; the global generator stays as it was."""
        return built(self.build, width, seed)

    def initial(self, seed: int) -> dict[str, Tensor]:
        """The global tensors before the first round: the weights that `build` makes, and for composed layers
        random factors whose product is as large as the weight they stand for.
        """
        dense = self.module(self.max_width, seed)
        values = dict(dense.named_parameters())
        generator = torch.Generator().manual_seed(seed)
        tensors: dict[str, Tensor] = {}
        for p in self.parameters:
            value = values[p.name].detach()
            if p.layout is None:
                tensors[p.name] = value.clone()
                continue
            factors = initial_factors(p.layout, p.rank, self.max_width, mean_square(value), generator)
            tensors[p.basis], tensors[p.coefficient] = factors
        return tensors

    def dense(self, width: int) -> LocalModel:
        """The plain module of this width; its tensors are the weights."""
        module = self.module(width)
        return LocalModel(module, dict(module.named_parameters()))

    def composed(self, width: int) -> LocalModel:
        """The module of this width with every composed weight replaced by its factors."""
        module = self.module(width)
        parameters = dict(module.named_parameters())
        for p in self.parameters:
            if p.layout is not None:
                frozen = not parameters.pop(p.name).requires_grad
                factors = [
                    nn.Parameter(zeros, not frozen) for zeros in empty_factors(p.layout, p.rank, width)
                ]
                parameters[p.basis], parameters[p.coefficient] = factors
                module = _swap(module, p, p.layout, *factors)
        bases = [parameters[p.basis] for p in self.parameters if p.layout]
        return LocalModel(module, parameters, self.tensor_shapes(width), bases)

    def tensor_shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all tensors a client of this width holds."""
        return {name: shape for p in self.parameters for name, shape in p.tensor_shapes(width).items()}

    @cached_property
    def kept_names(self) -> tuple[str, ...]:
        """The names of what the batch norms keep."""
        return kept_names(self.module(1))

    def kept_shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what the batch norms of this width keep."""
        found = dict(self.module(width).named_buffers())
        return {name: tuple(found[name].shape) for name in self.kept_names}

    def weight_shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the plain module's parameters."""
        shapes = {}
        for p in self.parameters:
            plain = {p.name: p.layout.weight_shape(width)} if p.layout else p.tensor_shapes(width)
            shapes.update(plain)
        return shapes

    def plain_weights(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The plain module's parameters: composed from tensors of any width, or those themselves. What batch
        norms keep stays with them.
        """
        if not any(p.layout is not None and p.basis in tensors for p in self.parameters):
            return tensors
        weights = {
            p.name: compose(tensors[p.basis], tensors[p.coefficient], p.layout)
            if p.layout
            else tensors[p.name]
            for p in self.parameters
        }
        return weights | {name: tensors[name] for name in self.kept_names if name in tensors}

    def factors(self, weights: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors whose composition is near these weights, found from the tensors they started as."""
        tensors: dict[str, Tensor] = {}
        for p in self.parameters:
            if p.layout is None:
                tensors[p.name] = weights[p.name]
            else:
                found = decompose(weights[p.name], start[p.basis], start[p.coefficient], p.layout)
                tensors[p.basis], tensors[p.coefficient] = found
        return tensors

    def cut(self, selection: Selection) -> Cut:
        """Where the tensors of a selection lie in the global tensors."""
        return self._cut(selection, self.max_width)

    def cut_within(self, width: int, narrow: int, holds: str) -> Cut:
        """Where the leading `narrow` channel groups lie in the tensors of a client of this width.

        They are "weights" or "factors".
        """
        if holds == "weights":
            return self._weight_cut(tuple(range(narrow)), width)
        return self._cut(grid_selection(tuple(range(narrow)), width), width)

    @property
    def classifier(self) -> tuple[str, ...]:
        """Weight and bias of the output layer: the last weight of which only the inputs grow."""
        outputs = [p for p in self.parameters if p.kind == GROUPED and p.axis == 1]
        if not outputs:
            return ()
        home, rows = outputs[-1].sites[-1][0], outputs[-1].shape[0]
        return tuple(
            p.name
            for p in self.parameters
            if p.shape[:1] == (rows,) and home in {path for path, _ in p.sites}
        )

    def initial_weights(self, seed: int) -> dict[str, Tensor]:
        """The plain weights of the full-width module before the first round."""
        return {name: p.detach().clone() for name, p in self.module(self.max_width, seed).named_parameters()}

    def cut_weights(self, groups: tuple[int, ...]) -> Cut:
        """Where the plain weights of some channel groups lie in the full-width weights."""
        return self._weight_cut(groups, self.max_width)

    @cached_property
    def finest(self) -> int:
        """Into how many equal pieces every channel group can be cut, in all layers alike."""
        return math.gcd(*(size for p in self.parameters for _, sizes in p.scaled_axes for size in sizes))

    def cut_pieces(self, pieces: tuple[int, ...]) -> Cut:
        """Where the plain weights of some of the `max_width * finest` finest pieces of all channels lie."""
        return self._piece_cut(pieces)

    def _make_piece_cut(self, pieces: tuple[int, ...]) -> Cut:
        parts = self.max_width * self.finest
        return {
            p.name: Slice(
                p.name,
                tuple(
                    (axis, group_indices(tuple(size // self.finest for size in sizes), pieces, parts))
                    for axis, sizes in p.scaled_axes
                ),
            )
            for p in self.parameters
        }

    def _make_weight_cut(self, groups: tuple[int, ...], width: int) -> Cut:
        """From the weights of a model of this width."""
        if groups == tuple(range(width)):
            return {p.name: Slice(p.name) for p in self.parameters}
        return {
            p.name: Slice(
                p.name,
                tuple((axis, group_indices(sizes, groups, width)) for axis, sizes in p.scaled_axes),
            )
            for p in self.parameters
        }

    def _make_cut(self, selection: Selection, width: int) -> Cut:
        """From the factors of a model of this width."""
        everything = tuple(range(width)), tuple(range(width**2))
        whole = (selection.groups, selection.pieces) == everything
        cut: dict[str, Slice] = {}
        for p in self.parameters:
            if whole or p.kind == SHARED:
                cut.update({name: Slice(name) for name in p.tensor_shapes(1)})
            elif p.kind == COMPOSED:
                cut[p.basis] = Slice(p.basis)
                cut[p.coefficient] = Slice(p.coefficient, ((0, torch.tensor(selection.pieces)),))
            else:
                indices = group_indices(p.sizes, selection.groups, width)
                cut[p.name] = Slice(p.name, ((p.axis, indices),))
        return cut


def _swap(
    root: nn.Module, p: Parameter, layout: Layout, basis: nn.Parameter, coefficient: nn.Parameter
) -> nn.Module:
    """Put factors in the place of a dense weight, wherever it is; returns the root, which may be new."""
    places = [(path, attribute, root.get_submodule(path)) for path, attribute in p.sites]
    fixed = {id(module) for path, _, module in places if path and layers.has_own_forward(_parent(root, path))}
    done: dict[tuple[int, str], nn.Module] = {}
    for path, attribute, module in places:
        key = id(module), attribute
        if key not in done:
            done[key] = _composed_module(
                module, attribute, layout, basis, coefficient, id(module) not in fixed
            )
        if path == "":
            root = done[key]
        else:
            setattr(_parent(root, path), path.rpartition(".")[2], done[key])
    return root


def _parent(root: nn.Module, path: str) -> nn.Module:
    return root.get_submodule(path.rpartition(".")[0])


def _composed_module(
    module: nn.Module,
    attribute: str,
    layout: Layout,
    basis: nn.Parameter,
    coefficient: nn.Parameter,
    replaceable: bool,
) -> nn.Module:
    plain = replaceable and layers.is_plain(module)
    if plain and isinstance(module, nn.Linear):
        return layers.ComposedLinear(module, layout, basis, coefficient)
    if plain and isinstance(module, nn.Conv2d):
        return layers.ComposedConv2d(module, layout, basis, coefficient)
    layers.compose_attribute(module, attribute, layout, basis, coefficient)
    return module
