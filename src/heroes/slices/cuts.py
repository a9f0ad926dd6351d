"""Cut a slice out of the global tensors, and lay updates back over them. The one aggregator: schemes differ
only in the cut.

A `Cut` names, for every tensor a client gets, the global tensor it comes from and the indices kept along some
axes.

>>> import torch
>>> whole = {"w": torch.arange(6.0).reshape(2, 3)}
>>> cut = {"w": Slice("w", ((1, torch.tensor([0, 2])),))}
>>> cut_out(whole, cut)["w"].tolist()
[[0.0, 2.0], [3.0, 5.0]]
>>> overlay_mean(whole, [(cut, {"w": torch.zeros(2, 2)})])["w"].tolist()
[[0.0, 1.0, 0.0], [0.0, 4.0, 0.0]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Slice:
    """Part of one global tensor: for each named axis the indices kept; axes not named are kept whole."""

    source: str
    axes: tuple[tuple[int, Tensor], ...] = ()


Cut = Mapping[str, Slice]
Part = tuple[Cut, Mapping[str, Tensor]]
Overlay = Callable[
    [Mapping[str, Tensor], Iterable[Part]], dict[str, Tensor]
]  # the global tensors and what clients made of them


def take(whole: Tensor, piece: Slice) -> Tensor:
    """The slice as a tensor of its own."""
    part = whole
    for axis, indices in piece.axes:
        part = part.index_select(axis, indices)
    return part.clone() if part is whole else part


def cut_out(whole: Mapping[str, Tensor], cut: Cut) -> dict[str, Tensor]:
    """The tensors a client gets. They share no memory with the global ones."""
    return {name: take(whole[piece.source], piece) for name, piece in cut.items()}


def cut_shapes(whole: Mapping[str, Tensor], cut: Cut) -> dict[str, tuple[int, ...]]:
    """The shapes `cut_out` would give."""
    shapes = {}
    for name, piece in cut.items():
        shape = list(whole[piece.source].shape)
        for axis, indices in piece.axes:
            shape[axis] = len(indices)
        shapes[name] = tuple(shape)
    return shapes


def overlay_mean(whole: Mapping[str, Tensor], parts: Iterable[Part]) -> dict[str, Tensor]:
    """Every element becomes the plain mean over the parts that hold it; what nobody holds keeps its value.

    Parts are taken one at a time, so memory does not grow with their number. Sums are kept in double
    precision.
    """
    layers: dict[str, _Layer] = {}
    for cut, tensors in parts:
        for name, piece in cut.items():
            layer = layers.get(piece.source)
            if layer is None:
                layer = layers[piece.source] = _Layer(whole[piece.source])
            layer.add(piece, tensors[name])
    return {name: layers[name].mean() if name in layers else old for name, old in whole.items()}


def holders(whole: Mapping[str, Tensor], cuts: Iterable[Cut]) -> dict[str, Tensor]:
    """How many of the cuts hold each element; broadcasts against the global tensor. Tensors that nobody holds
    are left out.
    """
    counts: dict[str, Tensor] = {}
    for cut in cuts:
        for piece in cut.values():
            old = whole[piece.source]
            count = _spread(counts.get(piece.source, torch.zeros([1] * old.dim())), piece, old)
            count[_address(old.dim(), dict(piece.axes))] += 1.0
            counts[piece.source] = count
    return counts


@dataclass
class _Layer:
    """Running sum and count over one global tensor."""

    old: Tensor
    total: Tensor = field(init=False)
    count: Tensor = field(init=False)  # broadcasts against the total: 1 along axes that no slice cuts

    def __post_init__(self) -> None:
        self.total = torch.zeros_like(self.old, dtype=torch.float64)
        self.count = torch.zeros([1] * self.old.dim(), dtype=torch.float64)

    def add(self, piece: Slice, value: Tensor) -> None:
        self.count = _spread(self.count, piece, self.old)
        if not piece.axes:
            self.total.add_(value)
            self.count.add_(1.0)
            return
        where = _address(self.old.dim(), dict(piece.axes))
        self.total[where] += value.to(torch.float64)
        self.count[where] += 1.0

    def mean(self) -> Tensor:
        mean = (self.total / self.count.clamp(min=1.0)).to(self.old.dtype)
        return torch.where(self.count > 0, mean, self.old)


def _spread(count: Tensor, piece: Slice, old: Tensor) -> Tensor:
    """Counts that can differ along the axes that the slice cuts."""
    for axis, _ in piece.axes:
        if count.shape[axis] == 1 != old.shape[axis]:
            count = count.repeat_interleave(old.shape[axis], axis)
    return count


def _address(dimensions: int, axes: Mapping[int, Tensor]) -> tuple[Tensor | slice, ...]:
    """Index arrays that pick the outer product of the kept indices, and whole axes elsewhere."""
    if len(axes) < 2:
        return tuple(axes.get(axis, slice(None)) for axis in range(dimensions))
    cut_axes = sorted(axes)
    if cut_axes != list(range(cut_axes[0], cut_axes[0] + len(cut_axes))):
        raise ValueError(f"cut axes must be neighbours, not {cut_axes}")
    open_mesh = torch.meshgrid(*(axes[axis] for axis in cut_axes), indexing="ij")
    mesh = dict(zip(cut_axes, open_mesh, strict=True))
    return tuple(mesh.get(axis, slice(None)) for axis in range(dimensions))
