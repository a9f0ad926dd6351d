"""What clients may send besides their tensors: how a client makes it, and what the server accepts.

A strategy names the extras it needs. Each is one tensor, and travels unrounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from heroes.client.probing import Probe

Shape = tuple[int, ...]


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


def _gradient(seen: Seen) -> Tensor | None:
    return None if seen.start is None else seen.start.gradient.float()


def _no_gradient(tensor: Tensor, parameters: int, classes: int) -> str | None:
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != (parameters,):
        shape = tuple(tensor.shape)
        return f"its gradient is {tensor.dtype} of shape {shape}, not float32 of {parameters} values"
    return None if bool(torch.isfinite(tensor).all()) else "its gradient is not finite"


def _labels(seen: Seen) -> Tensor:
    held: Tensor = torch.unique(seen.targets)
    return held


def _no_labels(tensor: Tensor, parameters: int, classes: int) -> str | None:
    whole = tensor.dtype == torch.int64 and tensor.dim() == 1 and tensor.numel() <= classes
    if whole and bool(((tensor >= 0) & (tensor < classes)).all()):
        return None
    return f"its labels are not classes from 0 to {classes - 1}"


def _four_each(shapes: Iterable[Shape]) -> int:
    return sum(4 * math.prod(shape) for shape in shapes)


GRADIENT = Extra("gradient", _gradient, _no_gradient, _four_each)
"""the gradient at the weights that the client received, over its probe batches"""
LABELS = Extra("labels", _labels, _no_labels)
"""the classes that the client holds"""
