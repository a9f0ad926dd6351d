"""Tries a family on a few real examples, which shows what shapes cannot.

Refused are buffers that change and modules that do not read their weights from their layers. A narrow
model should be a part of the wide one: with the other channels at zero both give the same; if not, there is
a remark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from heroes.errors import ModelError
from heroes.models.family import Family, LocalModel
from heroes.models.parameters import SHARED, Parameter, group_indices, owner_path
from heroes.models.statistics import full_name, keepers

Trace = list[tuple[str, Tensor]]
"""what layers put out, in the order in which they were called; the whole model last, under an empty path"""


@contextmanager
def same_buffers(module: nn.Module) -> Iterator[None]:
    """ModelError if what happens inside changes a buffer of the module that is not a batch norm's."""
    free = {full_name(path, name) for path, norm in keepers(module).items() for name in norm._buffers}
    before = {path: None if value is None else value.clone() for path, value in buffers(module).items()}
    yield
    for path, now in buffers(module).items():
        if path not in free and not _equal(before.get(path), now):
            raise ModelError(
                f"buffer {path!r} changes in training or testing, but clients send parameters only; make it "
                "an nn.Parameter, "
                "compute it from the batch, or leave it out (a norm of the weights: "
                "torch.nn.utils.parametrizations.weight_norm instead of spectral_norm)"
            )


def buffers(module: nn.Module) -> dict[str, Tensor | None]:
    """All buffers by path, those that are None as well."""
    return {
        full_name(path, name): value
        for path, inside in module.named_modules()
        for name, value in inside._buffers.items()
    }


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def refuse_another_function(family: Family, inputs: Tensor) -> None:
    """ModelError unless the composed model computes what the plain one does with the same weights."""
    composed, dense = family.composed(1), family.dense(1)
    part = _some_values(composed)
    composed.load(part)
    dense.load(family.plain_weights(part))
    layers = _layers(dense.module, family.parameters)
    odd = _first_difference(
        _trace(dense.module, inputs, layers), _trace(composed.module, inputs, layers), (), 1e-2
    )
    if odd is not None:
        raise ModelError(
            f"{_named(odd)} gives other values with composed weights than with plain ones; let forward read "
            "weights from the layers themselves (self.layer.weight), not from a list or a copy that was "
            "made before"
        )


def _some_values(model: LocalModel) -> dict[str, Tensor]:
    """What the model was built with; where that is zeros (factors), small numbers."""
    generator = torch.Generator().manual_seed(0)
    noise = {name: torch.randn(shape, generator=generator) for name, shape in model.shapes.items()}
    return {
        name: value if value.any() else noise[name] / max(value.shape, default=1) ** 0.5
        for name, value in model.read().items()
    }


def remark_on_cuts(family: Family, inputs: Tensor) -> str | None:
    """What to tell the user if a narrow model is no part of the wide one; None if it is."""
    if family.max_width == 1:
        return None
    narrow, wide = family.module(1), family.module(2)
    fixed = buffers(wide)
    for path, value in buffers(narrow).items():
        other = fixed.get(path)
        if (
            value is not None
            and other is not None
            and value.shape == other.shape
            and not _equal(value, other)
        ):
            return (
                f"buffer {path!r} has other values at width 1 than at width 2: draw them from a generator of "
                "their own (torch.Generator().manual_seed(...)), so that all widths have the same"
            )
    _share_one_group(family.parameters, narrow, wide)
    layers = _layers(narrow, family.parameters)
    scaled = _wholly_scaled(family.parameters)
    with _NoStatistics():
        odd = _first_difference(_trace(narrow, inputs, layers), _trace(wide, inputs, layers), scaled, 1e-3)
    if odd is None:
        return None
    return (
        f"{_named(odd)} gives other values in a narrow model than in the wide one with all other channels at "
        "zero: narrow and wide clients may work against each other. If it reads a concatenation, or a layer "
        "before it makes several vectors in one, declare that: heroes.stacked(layer, inputs=[size, size]) "
        "or outputs=... (docs/models.md)"
    )


@torch.no_grad()
def _share_one_group(parameters: Sequence[Parameter], narrow: nn.Module, wide: nn.Module) -> None:
    """Give the narrow module and the second channel group of the wide one the same values.

    None of them is zero by design. The rest of the wide one is put near zero (at zero a norm of weights would
    divide by it).
    """
    generator = torch.Generator().manual_seed(0)
    small, large = dict(narrow.named_parameters()), dict(wide.named_parameters())
    for p in parameters:
        value = large[p.name]
        fan_in = value.numel() / value.shape[0] if value.dim() > 1 else 4.0
        noise = torch.randn(value.shape, generator=generator) / (2 * fan_in**0.5)
        part, mask = value + noise.to(value.dtype), torch.ones_like(value)
        whole = part
        for axis, sizes in p.scaled_axes:
            kept = group_indices(sizes, (1,), 2)
            part = part.index_select(axis, kept)
            there = torch.full((value.shape[axis],), 1e-6).index_fill(0, kept, 1.0)
            mask *= there.view([-1 if i == axis else 1 for i in range(value.dim())]).to(mask.dtype)
        small[p.name].copy_(part)
        value.copy_(whole * mask)


def _layers(module: nn.Module, parameters: Sequence[Parameter]) -> frozenset[str]:
    """The paths of torch's own layers that hold parameters."""
    paths = {owner_path(path) for p in parameters for path, _ in p.sites} - {""}
    return frozenset(
        path
        for path in paths
        if parametrize.type_before_parametrizations(module.get_submodule(path)).__module__.startswith(
            "torch.nn"
        )
    )


def _wholly_scaled(parameters: Sequence[Parameter]) -> frozenset[str]:
    """The paths of layers whose parameters all grow with the width: zero channels give zero outputs."""
    homes = {p.name: {owner_path(path) for path, _ in p.sites} for p in parameters}
    shared = set().union(*(homes[p.name] for p in parameters if p.kind == SHARED))
    return frozenset(set().union(*homes.values()) - shared)


@torch.no_grad()
def _trace(module: nn.Module, inputs: Tensor, layers: frozenset[str]) -> Trace:
    """What the layers at these paths and the whole module put out, without dropout and the like."""
    trace: Trace = []
    for path in layers:

        def keep(_: nn.Module, __: Any, outputs: Any, path: str = path) -> None:
            if (first := _first_tensor(outputs)) is not None:
                trace.append((path, first.detach().clone()))

        module.get_submodule(path).register_forward_hook(keep)
    with torch.random.fork_rng(devices=[]), parametrize.cached():
        torch.manual_seed(0)
        whole = _first_tensor(module.eval()(inputs))
    return trace if whole is None else [*trace, ("", whole)]


def _first_tensor(outputs: Any) -> Tensor | None:
    while isinstance(outputs, tuple | list) and outputs:
        outputs = outputs[0]
    return outputs if isinstance(outputs, Tensor) else None


def _first_difference(
    one: Trace, other: Trace, scaled: frozenset[str] | tuple[()], tolerance: float
) -> str | None:
    """The first layer whose outputs differ.

    An axis that is wider in the other trace is summed in both, if the layer is known to put zeros in channels
    that are at zero.
    """
    for (path, value), (_, wider) in zip(one, other, strict=False):
        a, b = value.double(), wider.double()
        grown = [axis for axis in range(a.dim()) if b.dim() == a.dim() and a.shape[axis] != b.shape[axis]]
        if grown and path in scaled:
            a, b = a.sum(grown), b.sum(grown)
        if a.shape == b.shape and bool(torch.isfinite(a).all()) and not _near(a, b, tolerance):
            return path
    return None


def _near(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """As a whole: one unit in many that rounds the other way is no difference."""
    return bool((a - b).norm() <= tolerance * a.norm() + 1e-6)


def _named(path: str) -> str:
    return f"layer {path!r}" if path else "the model"


class _NoStatistics(TorchFunctionMode):
    """Norms over channels only scale and shift: their statistics depend on the width, which is no mistake."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        names = {F.layer_norm: "weight bias", F.group_norm: "weight bias", F.rms_norm: "weight"}.get(func)
        if names is None:
            return func(*args, **(kwargs or {}))
        x, given = args[0], dict(zip(names.split(), args[2:], strict=False)) | dict(kwargs or {})
        weight, bias = given.get("weight"), given.get("bias")
        if func is F.group_norm:
            ones = [1] * (x.dim() - 2)
            weight, bias = (None if v is None else v.view(-1, *ones) for v in (weight, bias))
        return (x if weight is None else x * weight) + (0.0 if bias is None else bias)
