"""What a family's parameters are, read off their shapes at several widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from heroes.errors import ModelError
from heroes.models.stacks import Parts, in_units, stacked_parts
from heroes.slices.compose import Layout

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
    sizes: tuple[int, ...] = ()  # of the parts of the scaled axis at width 1, when grouped
    layout: Layout | None = None  # when composed
    rank: int = 0  # when composed

    @cached_property
    def basis(self) -> str:
        return f"{self.name}.basis"

    @cached_property
    def coefficient(self) -> str:
        return f"{self.name}.coefficient"

    @property
    def scaled_axes(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Every axis of the plain weight that grows with the width, and the sizes of its parts at width 1."""
        if self.layout is None:
            return ((self.axis, self.sizes),) if self.kind == GROUPED else ()
        of = self.layout
        outputs = of.output_sizes or (of.outputs // of.output_parts,) * of.output_parts
        inputs = of.input_sizes or (of.inputs // of.input_parts,) * of.input_parts
        return (0, outputs), (1, inputs)

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


def group_indices(sizes: tuple[int, ...], groups: tuple[int, ...], max_width: int) -> Tensor:
    """The indices of some channel groups along an axis that is stacked from parts of these sizes at width 1.

    >>> group_indices((2,), (0, 2), 3).tolist()
    [0, 1, 4, 5]
    >>> group_indices((1, 2), (1,), 2).tolist()
    [1, 4, 5]
    """
    parts = torch.arange(sum(sizes) * max_width).split([size * max_width for size in sizes])
    return torch.cat([part.view(max_width, -1)[list(groups)].reshape(-1) for part in parts])


def built(build: Build, width: int, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = build(width)
        except Exception as error:
            raise ModelError(f"build(width={width}) failed: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"build(width={width}) must return a torch.nn.Module, not {type(module).__name__}")
    for path, inside in module.named_modules():
        if isinstance(inside, torch.jit.ScriptModule):
            raise ModelError(
                f"build(width={width}) made {f'module {path!r}' if path else 'a module'} with torch.jit, "
                "whose layers cannot be cut; return the module itself, and script the trained one"
            )
    return module


def detect(build: Build, max_width: int, rank_ratio: float) -> tuple[Parameter, ...]:
    """Compare the family at widths 1, 2 and the largest."""
    widths = sorted({1, 2, max(2, max_width)})
    modules = {width: built(build, width) for width in widths}
    shapes = {width: _shapes(module) for width, module in modules.items()}
    for width in widths[1:]:
        if shapes[width].keys() != shapes[1].keys():
            odd = sorted(shapes[width].keys() ^ shapes[1].keys())[0]
            both = f"width 1 or {width} but not at both"
            raise ModelError(f"parameter {odd!r} exists at {both}; widths may differ in sizes only")
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
    if not scaled:
        return Parameter(name, SHARED, one, sites)
    parts = _parts(module, sites)
    sizes = {axis: _sizes(name, axis, one[axis], parts[axis] if axis < 2 else 1) for axis in scaled}
    if len(scaled) == 1:
        return Parameter(name, GROUPED, one, sites, axis=scaled[0], sizes=sizes[scaled[0]])
    if scaled != (0, 1):
        raise ModelError(
            f"parameter {name!r} scales along axes {scaled}; only the first two (outputs, inputs) can be "
            "composed: reshape it inside the module"
        )
    layout = _layout(one, sizes[0], sizes[1])
    return Parameter(name, COMPOSED, one, sites, layout=layout, rank=layout.rank(rank_ratio, max_width))


def _parts(module: nn.Module, sites: tuple[tuple[str, str], ...]) -> tuple[Parts, Parts]:
    """From which parts a parameter's first two axes are stacked, by the first of its places that says so."""
    found = [stacked_parts(*_owner(module, path, attribute)) for path, attribute in sites]
    return next((parts for parts in found if parts != (1, 1)), (1, 1))


def _owner(module: nn.Module, path: str, attribute: str) -> tuple[nn.Module, str]:
    """The layer that a parameter belongs to, and its name there; a parametrised one lies deeper."""
    layer = owner_path(path)
    return module.get_submodule(layer), attribute if layer == path else path.rpartition(".")[2]


def owner_path(path: str) -> str:
    """The path of the layer whose parameter is kept at this path.

    >>> owner_path("body.0"), owner_path("body.0.parametrizations.weight")
    ('body.0', 'body.0')
    >>> owner_path("parametrizations.weight")
    ''
    """
    layer, inside, name = path.rpartition("parametrizations.")
    return layer.removesuffix(".") if inside and "." not in name else path


def _sizes(name: str, axis: int, size: int, parts: Parts) -> tuple[int, ...]:
    sizes = in_units(parts, size)
    if sizes is None:
        why = (
            f"not a multiple of its {parts} parts"
            if isinstance(parts, int)
            else f"which parts of sizes {', '.join(map(str, parts))} do not add up to"
        )
        raise ModelError(f"parameter {name!r}: axis {axis} has {size} entries at width 1, {why}")
    return sizes


def _layout(shape: tuple[int, ...], outputs: tuple[int, ...], inputs: tuple[int, ...]) -> Layout:
    """Equal parts are counted, unequal ones keep their sizes."""
    counts = [len(sizes) if len(set(sizes)) == 1 else 1 for sizes in (outputs, inputs)]
    unequal = [sizes if len(set(sizes)) > 1 else () for sizes in (outputs, inputs)]
    return Layout(shape[0], shape[1], shape[2:], counts[0], counts[1], unequal[0], unequal[1])


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
        if getattr(module, "running_mean", None) is not None and not isinstance(module, _BatchNorm):
            raise ModelError(
                f"buffer '{path}.running_mean' keeps running statistics, which only batch norms may; use "
                "nn.GroupNorm(width, channels), or track_running_stats=False"
            )
        if getattr(module, "sparse", False) is True:
            raise ModelError(
                f"parameter '{path}.weight' has sparse gradients, which clients do not train with; use "
                "sparse=False"
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
