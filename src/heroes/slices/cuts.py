"""Cut a slice out of the global tensors. Works on tensors without importing torch.

A `Cut` names, for every tensor a client gets, the global tensor it comes from and the indices kept along some
axes.

>>> import torch
>>> whole = {"w": torch.arange(6.0).reshape(2, 3)}
>>> cut_out(whole, {"w": Slice("w", ((1, torch.tensor([0, 2])),))})["w"].tolist()
[[0.0, 2.0], [3.0, 5.0]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Slice:
    """Part of one global tensor: for each named axis the indices kept; axes not named are kept whole."""

    source: str
    axes: tuple[tuple[int, Tensor], ...] = ()


Cut = Mapping[str, Slice]
Part = tuple[Cut, Mapping[str, "Tensor"]]
Overlay = Callable[[Mapping[str, "Tensor"], Iterable[Part]], dict[str, "Tensor"]]
"""the global tensors and what clients made of them, to the new global tensors"""


def take(whole: Tensor, piece: Slice) -> Tensor:
    """The slice as a tensor of its own."""
    part = whole
    for axis, indices in piece.axes:
        part = part.index_select(axis, indices.to(part.device))
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


def scaled(old: Mapping[str, Tensor], new: Mapping[str, Tensor], factor: float) -> Mapping[str, Tensor]:
    """Tensors whose change from the old ones is so many times as large."""
    if factor == 1:
        return new
    return {
        name: (old[name].double() + factor * (tensor.double() - old[name].double())).to(tensor.dtype)
        for name, tensor in new.items()
    }
