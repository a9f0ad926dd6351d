"""Error feedback: what rounding left out of a client's upload is kept, and added to what it sends next.

What is kept is a value, `ServerState.residuals`; here is how it is read and how a round adds to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from heroes.errors import ExchangeError
from heroes.messages import Tensors
from heroes.slices.cuts import Cut, cut_out
from heroes.slices.exchange import tensors_bytes
from heroes.slices.overlays import overlay_mean

Residuals = Mapping[int, Tensors]  # by client, those kept longest ago first


@dataclass(frozen=True)
class Leftover:
    """What the rounding of one client's upload left out, and where it lies in the global tensors."""

    client: int
    cut: Cut
    residuals: Tensors


@dataclass(frozen=True)
class Feedback:
    """Keeps clients' residuals in global coordinates, so that a later, different cut finds its part.

    A client costs at most one global model of these `shapes`. Past `limit` bytes the clients that took part
    longest ago are forgotten, which loses a correction and nothing else.
    """

    shapes: Mapping[str, tuple[int, ...]]
    limit: int = 2**30

    def __post_init__(self) -> None:
        model = tensors_bytes(self.shapes.values(), 32)
        if model > self.limit:
            raise ExchangeError(
                f"error feedback may use {self.limit} bytes, but the residuals of one client can take {model}"
            )

    def residuals(self, kept: Residuals, client: int, cut: Cut) -> dict[str, Tensor]:
        """What is left over for this cut; zero where the client never sent."""
        return cut_out(self._blank() | dict(kept.get(client, {})), cut)

    def keep(self, kept: Residuals, leftovers: Iterable[Leftover]) -> Residuals:
        """All residuals after a round: the new ones of its leftovers, in plan order, and the old."""
        after = dict(kept)
        used = sum(map(_bytes, after.values()))
        for left in leftovers:
            before = dict(after.pop(left.client, {}))
            whole = self._blank() | before
            touched = {piece.source: whole[piece.source] for piece in left.cut.values()}
            mine = before | overlay_mean(touched, [(left.cut, left.residuals)])
            after[left.client] = mine
            used += _bytes(mine) - _bytes(before)
            while used > self.limit:
                used -= _bytes(after.pop(next(iter(after))))
        return after

    def _blank(self) -> dict[str, Tensor]:
        """Zeros of all shapes that take no memory."""
        return {name: torch.zeros(()).expand(shape) for name, shape in self.shapes.items()}


def _bytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
