"""Lay updates back over the global tensors. The one aggregator: strategies differ only in the cut.

>>> from heroes.slices.cuts import Slice
>>> whole = {"w": torch.arange(6.0).reshape(2, 3)}
>>> cut = {"w": Slice("w", ((1, torch.tensor([0, 2])),))}
>>> overlay_mean(whole, [(cut, {"w": torch.zeros(2, 2)})])["w"].tolist()
[[0.0, 1.0, 0.0], [0.0, 4.0, 0.0]]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heroes.slices.cuts import Cut, Part, Slice


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
    """How many of the cuts hold each element; broadcasts to the tensor. Unheld tensors are left out."""
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
    everywhere: int = 0  # slices that hold all of it, which the count leaves out

    def __post_init__(self) -> None:
        self.total = torch.zeros_like(self.old, dtype=torch.float64)
        self.count = torch.zeros([1] * self.old.dim(), dtype=torch.float64)

    def add(self, piece: Slice, value: Tensor) -> None:
        if not piece.axes:
            self.total.add_(value)
            self.everywhere += 1
            return
        self.count = _spread(self.count, piece, self.old)
        where = _address(self.old.dim(), dict(piece.axes))
        self.total[where] += value.to(torch.float64)
        self.count[where] += 1.0

    def mean(self) -> Tensor:
        count = self.count + self.everywhere
        mean = (self.total / count.clamp(min=1.0)).to(self.old.dtype)
        return torch.where(count > 0, mean, self.old)


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
