"""A model family: `build(width) -> nn.Module`, read by its shapes.

Building at two widths and comparing shapes tells which axes scale. Three kinds of parameter follow:
*composed* (inputs and outputs scale), *grouped* (one axis scales) and *shared* (none). The family knows the
global tensors, where a selection lies in them, and how to make a dense or a composed module of any width.
Nothing is declared by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from heroes.errors import ModelError
from heroes.messages import Selection
from heroes.models import layers
from heroes.slices.compose import Layout, compose, decompose, empty_factors, initial_factors
from heroes.slices.cuts import Cut, Slice

Build = Callable[[int], nn.Module]
COMPOSED, GROUPED, SHARED = "composed", "grouped", "shared"


@dataclass(frozen=True)
class Parameter:
    """One parameter of the family: its kind, its shape at width 1, and where the modules keep it."""

    name: str
    kind: str
    shape: tuple[int, ...]  # at width 1
    sites: tuple[tuple[str, str], ...]  # (module path, attribute); more than one where weights are tied
    axis: int = 0  # the scaled axis, when grouped
    parts: int = 1  # of the scaled axis, when grouped
    layout: Layout | None = None  # when composed
    rank: int = 0  # when composed

    @property
    def basis(self) -> str:
        return f"{self.name}.basis"

    @property
    def coefficient(self) -> str:
        return f"{self.name}.coefficient"

    @property
    def scaled_axes(self) -> tuple[tuple[int, int], ...]:
        """(axis, parts) of every axis of the plain weight that grows with the width."""
        if self.layout is not None:
            return (0, self.layout.output_parts), (1, self.layout.input_parts)
        return ((self.axis, self.parts),) if self.kind == GROUPED else ()

    def tensor_shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what a client of this width holds."""
        if self.layout is not None:
            return {
                self.basis: (self.layout.basis_rows, self.rank),
                self.coefficient: (width**2, self.rank, self.layout.outputs),
            }
        if self.kind == SHARED:
            return {self.name: self.shape}
        return {self.name: tuple(n * width if i == self.axis else n for i, n in enumerate(self.shape))}


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

    def __call__(self, inputs: Tensor) -> Tensor:
        """What the module makes of a batch; a weight that it looks up more than once is composed once."""
        with parametrize.cached():
            outputs: Tensor = self.module(inputs)
        return outputs

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[name].view(parameter.shape))

    @torch.no_grad()
    def read(self) -> dict[str, Tensor]:
        return {name: _plain(self.parameters[name], shape) for name, shape in self.shapes.items()}


def _plain(parameter: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A copy of the parameter in this shape, in the ordinary memory layout."""
    return torch.empty(shape, dtype=parameter.dtype).copy_(parameter.detach().reshape(shape))


class Family:
    """Everything that depends on the model's shapes. Widths run from 1 to `max_width`."""

    def __init__(self, build: Build, max_width: int, rank_ratio: float = 1.0) -> None:
        self.build = build
        self.max_width = max_width
        self.rank_ratio = rank_ratio
        self.parameters = _detect(build, max_width, rank_ratio)
        self._cut = lru_cache(maxsize=4096)(self._make_cut)
        self._weight_cut = lru_cache(maxsize=4096)(self._make_weight_cut)

    def __reduce__(self) -> tuple[type[Family], tuple[Build, int, float]]:
        """A copy in another process is made anew from the user's function."""
        return Family, (self.build, self.max_width, self.rank_ratio)

    def module(self, width: int, seed: int = 0) -> nn.Module:
        """The user's module, initialised from the seed; the global generator stays as it was."""
        return _built(self.build, width, seed)

    def initial(self, seed: int) -> dict[str, Tensor]:
        """The global tensors before the first round."""
        dense = self.module(self.max_width, seed)
        values = dict(dense.named_parameters())
        generator = torch.Generator().manual_seed(seed)
        tensors: dict[str, Tensor] = {}
        for p in self.parameters:
            value = values[p.name].detach()
            if p.layout is None:
                tensors[p.name] = value.clone()
                continue
            owner = dense.get_submodule(p.sites[0][0])
            variance = layers.he_variance(owner, p.layout, self.max_width, value)
            factors = initial_factors(p.layout, p.rank, self.max_width, variance, generator)
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

    def weight_shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the plain module's parameters."""
        shapes = {}
        for p in self.parameters:
            plain = {p.name: p.layout.weight_shape(width)} if p.layout else p.tensor_shapes(width)
            shapes.update(plain)
        return shapes

    def plain_weights(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The plain module's parameters: composed from tensors of any width, or those themselves."""
        if not any(p.layout is not None and p.basis in tensors for p in self.parameters):
            return tensors
        return {
            p.name: compose(tensors[p.basis], tensors[p.coefficient], p.layout)
            if p.layout
            else tensors[p.name]
            for p in self.parameters
        }

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
        return self._cut(selection)

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
        return self._weight_cut(groups)

    def _make_weight_cut(self, groups: tuple[int, ...]) -> Cut:
        if groups == tuple(range(self.max_width)):
            return {p.name: Slice(p.name) for p in self.parameters}
        return {
            p.name: Slice(
                p.name,
                tuple(
                    (axis, group_indices(p.shape[axis], parts, groups, self.max_width))
                    for axis, parts in p.scaled_axes
                ),
            )
            for p in self.parameters
        }

    def _make_cut(self, selection: Selection) -> Cut:
        everything = tuple(range(self.max_width)), tuple(range(self.max_width**2))
        whole = (selection.groups, selection.pieces) == everything
        cut: dict[str, Slice] = {}
        for p in self.parameters:
            if whole or p.kind == SHARED:
                cut.update({name: Slice(name) for name in p.tensor_shapes(1)})
            elif p.kind == COMPOSED:
                cut[p.basis] = Slice(p.basis)
                cut[p.coefficient] = Slice(p.coefficient, ((0, torch.tensor(selection.pieces)),))
            else:
                indices = group_indices(p.shape[p.axis], p.parts, selection.groups, self.max_width)
                cut[p.name] = Slice(p.name, ((p.axis, indices),))
        return cut


def group_indices(size: int, parts: int, groups: tuple[int, ...], max_width: int) -> Tensor:
    """The indices of some channel groups along an axis of `parts` stacked parts, `size` entries at width 1.

    >>> group_indices(2, 1, (0, 2), 3).tolist()
    [0, 1, 4, 5]
    >>> group_indices(2, 2, (1,), 2).tolist()
    [1, 3]
    """
    unit = size // parts
    table = torch.arange(size * max_width).view(parts, max_width, unit)
    return table[:, list(groups)].reshape(-1)


def _built(build: Build, width: int, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = build(width)
        except Exception as error:
            raise ModelError(f"build(width={width}) failed: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"build(width={width}) must return a torch.nn.Module, not {type(module).__name__}")
    return module


def _detect(build: Build, max_width: int, rank_ratio: float) -> tuple[Parameter, ...]:
    """Compare the family at widths 1, 2 and the largest."""
    widths = sorted({1, 2, max(2, max_width)})
    modules = {width: _built(build, width) for width in widths}
    shapes = {width: _shapes(module) for width, module in modules.items()}
    for width in widths[1:]:
        if shapes[width].keys() != shapes[1].keys():
            odd = sorted(shapes[width].keys() ^ shapes[1].keys())[0]
            raise ModelError(
                f"parameter {odd!r} exists at width 1 or {width} but not at both; widths may differ in sizes "
                "only"
            )
    sites = _sites(modules[1])
    found = tuple(
        _classify(name, {w: shapes[w][name] for w in widths}, sites[name], modules[1], max_width, rank_ratio)
        for name in shapes[1]
    )
    if all(p.kind == SHARED for p in found):
        raise ModelError(
            "no parameter changes with the width; build(width) must make hidden layers `width` times as wide"
        )
    _refuse_what_cannot_be_cut(modules[1], modules[2], found)
    return found


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    for name, parameter in module.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ModelError(f"parameter {name!r} has no shape yet; give lazy modules their input size")
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def _sites(module: nn.Module) -> dict[str, tuple[tuple[str, str], ...]]:
    """For every parameter all places that hold it, under the name that `named_parameters` gives it."""
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    sites: dict[str, list[tuple[str, str]]] = {name: [] for name in first.values()}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        path, _, attribute = name.rpartition(".")
        sites[first[id(parameter)]].append((path, attribute))
    return {name: tuple(places) for name, places in sites.items()}


def _classify(
    name: str,
    shapes: Mapping[int, tuple[int, ...]],
    sites: tuple[tuple[str, str], ...],
    module: nn.Module,
    max_width: int,
    rank_ratio: float,
) -> Parameter:
    one = shapes[1]
    scaled = _scaled_axes(name, shapes)
    path, attribute = sites[0]
    parts = layers.stacked_parts(module.get_submodule(path), attribute)
    for axis in scaled:
        if axis < 2 and one[axis] % parts[axis]:
            raise ModelError(
                f"parameter {name!r}: axis {axis} has {one[axis]} entries at width 1, not a multiple of its "
                f"{parts[axis]} parts"
            )
    if not scaled:
        return Parameter(name, SHARED, one, sites)
    if len(scaled) == 1:
        axis = scaled[0]
        return Parameter(name, GROUPED, one, sites, axis=axis, parts=parts[axis] if axis < 2 else 1)
    if scaled != (0, 1):
        raise ModelError(
            f"parameter {name!r} scales along axes {scaled}; only the first two (outputs, inputs) can be "
            "composed: reshape it inside the module"
        )
    layout = Layout(one[0], one[1], one[2:], *parts)
    return Parameter(name, COMPOSED, one, sites, layout=layout, rank=layout.rank(rank_ratio, max_width))


def _scaled_axes(name: str, shapes: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    one = shapes[1]
    for width, shape in shapes.items():
        if len(shape) != len(one):
            raise ModelError(
                f"parameter {name!r} has {len(one)} axes at width 1 and {len(shape)} at width {width}"
            )
    scaled = tuple(axis for axis, size in enumerate(one) if shapes[2][axis] != size)
    for width, shape in shapes.items():
        wanted = tuple(size * width if axis in scaled else size for axis, size in enumerate(one))
        if shape != wanted:
            raise ModelError(
                f"parameter {name!r} has shape {one} at width 1 and {shape} at width {width}, where {wanted} "
                "was expected; make every hidden size a multiple of the width (size = width * n)"
            )
    return scaled


def _refuse_what_cannot_be_cut(one: nn.Module, two: nn.Module, parameters: tuple[Parameter, ...]) -> None:
    scaled = {site for p in parameters if p.kind != SHARED for site in p.sites}
    at_two = dict(two.named_modules())
    for path, module in one.named_modules():
        wider = at_two.get(path)
        if getattr(module, "running_mean", None) is not None:
            raise ModelError(
                f"buffer '{path}.running_mean' keeps running statistics, which cannot be averaged over "
                "different widths; use nn.GroupNorm(width, channels), or track_running_stats=False"
            )
        fixed_groups = (
            isinstance(module, nn.modules.conv._ConvNd) and module.groups == getattr(wider, "groups", 1) > 1
        )
        if fixed_groups and (path, "weight") in scaled:
            raise ModelError(
                f"parameter '{path}.weight' belongs to a convolution with {module.groups} groups at every "
                "width; use groups=1 or let the number of groups grow with the width (groups = width * n)"
            )
        if isinstance(module, nn.MultiheadAttention) and isinstance(wider, nn.MultiheadAttention):
            grows = wider.embed_dim != module.embed_dim
            if grows and wider.num_heads != 2 * module.num_heads:
                raise ModelError(
                    f"parameter '{path}.in_proj_weight' belongs to attention with {module.num_heads} heads "
                    f"at width 1 and {wider.num_heads} at width 2; let the heads grow with the width "
                    "(num_heads = width * n)"
                )


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
    if type(module) is nn.Linear and replaceable:
        return layers.ComposedLinear(module, layout, basis, coefficient)
    if type(module) is nn.Conv2d and replaceable:
        return layers.ComposedConv2d(module, layout, basis, coefficient)
    layers.compose_attribute(module, attribute, layout, basis, coefficient)
    return module
