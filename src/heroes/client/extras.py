"""What clients may send besides their tensors: how a client makes it, and what the server accepts.

A strategy names the extras it needs. Each is one tensor, and travels unrounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heroes import seeds
from heroes.client.probing import Probe

Shape = tuple[int, ...]
SKETCHED = 1000
"""numbers of a sketch"""
_AT_ONCE = 2**20  # values sketched at a time, so that it takes little memory; the draws depend on it


@dataclass(frozen=True)
class Seen:
    """What a client saw in a round: the targets of all its examples, and its gradients before it trained."""

    targets: Tensor
    start: Probe | None


@dataclass(frozen=True)
class Extra:
    """One thing that clients send besides their tensors.

    `make` gives the tensor, or None if there is nothing to send. `wrong` says what is wrong with a tensor
    that arrived, given the number of parameters and of classes; None if it is right. `nbytes` is what it
    weighs on the wire for a model with tensors of these shapes.
    """

    name: str
    make: Callable[[Seen], Tensor | None]
    wrong: Callable[[Tensor, int, int], str | None]
    nbytes: Callable[[Iterable[Shape]], int] = lambda shapes: 0


def sketch(values: Tensor) -> Tensor:
    """A count sketch: each value, under a random sign, is added to one of `SKETCHED` sums drawn at random.

    Everyone draws the same, so that the sketch of a difference is the difference of two sketches. Its norm is
    that of the difference itself, give or take two percent.
    """
    draws = seeds.stream(0, "sketch")
    sums = np.zeros(SKETCHED)
    for part in values.double().split(_AT_ONCE):
        drawn = draws.integers(2 * SKETCHED, size=len(part), dtype=np.uint16)
        signed = np.where(drawn % 2, part.numpy(), -part.numpy())
        sums += np.bincount(drawn // 2, signed, SKETCHED)
    return torch.from_numpy(sums).float()


def _sketch(seen: Seen) -> Tensor | None:
    return None if seen.start is None else sketch(seen.start.gradient)


def _no_sketch(tensor: Tensor, parameters: int, classes: int) -> str | None:
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != (SKETCHED,):
        shape = tuple(tensor.shape)
        return f"its sketch is {tensor.dtype} of shape {shape}, not float32 of {SKETCHED} values"
    return None if bool(torch.isfinite(tensor).all()) else "its sketch is not finite"


def _labels(seen: Seen) -> Tensor:
    held: Tensor = torch.unique(seen.targets)
    return held.long()  # many data sets keep them as bytes


def _no_labels(tensor: Tensor, parameters: int, classes: int) -> str | None:
    whole = tensor.dtype == torch.int64 and tensor.dim() == 1 and tensor.numel() <= classes
    if whole and bool(((tensor >= 0) & (tensor < classes)).all()):
        return None
    return f"its labels are not classes from 0 to {classes - 1}"


SKETCH = Extra("sketch", _sketch, _no_sketch, lambda shapes: 4 * SKETCHED)
"""the gradient at the weights that the client received, over its probe batches, in few numbers"""
LABELS = Extra("labels", _labels, _no_labels)
"""the classes that the client holds"""
