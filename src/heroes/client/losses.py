"""Losses: what a client minimises, and which outputs and targets go with it.

Outputs that do not fit their targets are a TrainingError that names both shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from heroes.contracts import Loss
from heroes.errors import DataError, TrainingError, said

Pair = tuple[Tensor, Tensor]
Function = Callable[[Any, Any], Any]  # of outputs and targets, by the user


@dataclass(frozen=True)
class CrossEntropy:
    """Classification. Outputs (n, classes, ...) are scores, targets (n, ...) are class numbers.

    Label smoothing counts in training only.
    """

    label_smoothing: float = 0.0
    name: ClassVar[str] = "cross_entropy"

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _cross_entropy(*self.aligned(outputs, targets), "mean", self.label_smoothing)

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _cross_entropy(*self.aligned(outputs, targets), "none")

    def aligned(self, outputs: Tensor, targets: Tensor) -> Pair:
        shape = _shape(outputs, self.name)
        if len(shape) < 2 or shape[:1] + shape[2:] != tuple(targets.shape):
            raise misfit(self.name, outputs, targets, "it takes outputs (n, classes) and targets (n,)")
        return _scores(outputs, targets)

    def check(self, targets: Tensor) -> None:
        _check_whole(targets, self.name, "class")


@dataclass(frozen=True)
class NextToken(CrossEntropy):
    """Predicts the next token: outputs (n, tokens, vocabulary), targets (n, tokens); the mean over tokens."""

    name: ClassVar[str] = "next_token"

    def aligned(self, outputs: Tensor, targets: Tensor) -> Pair:
        shape = _shape(outputs, self.name)
        if len(shape) != 3 or shape[:2] != tuple(targets.shape):
            wanted = "it takes outputs (n, tokens, vocabulary) and targets (n, tokens)"
            raise misfit(self.name, outputs, targets, wanted)
        return outputs.flatten(0, 1), targets.flatten()

    def check(self, targets: Tensor) -> None:
        _check_whole(targets, self.name, "token")


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Yes or no for every output; above 0 means yes.

    Targets are 0 to 1 in the outputs' shape, or (n,) for one output.
    """

    name: ClassVar[str] = "binary_cross_entropy"

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs, targets = self.aligned(outputs, targets)
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs, targets = self.aligned(outputs, targets)
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none")

    def aligned(self, outputs: Tensor, targets: Tensor) -> Pair:
        return _alike(outputs, targets, self.name)

    def check(self, targets: Tensor) -> None:
        if not bool(((targets >= 0) & (targets <= 1)).all()):
            span = f"{targets.min():g} to {targets.max():g}"
            raise DataError(f"objective.name is {self.name!r}, but targets are {span}; they must be 0 to 1")


@dataclass(frozen=True)
class MeanSquaredError:
    """Numbers: float targets (n,) or (n, d), outputs of the same shape, or (n, 1) for (n,)."""

    name: ClassVar[str] = "mean_squared_error"

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(*self.aligned(outputs, targets))

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(*self.aligned(outputs, targets), reduction="none")

    def aligned(self, outputs: Tensor, targets: Tensor) -> Pair:
        return _alike(outputs, targets, self.name)

    def check(self, targets: Tensor) -> None:
        if not targets.dtype.is_floating_point:
            raise DataError(
                f"objective.name is {self.name!r}, but targets are {targets.dtype}; it takes torch.float32"
            )
        if not bool(torch.isfinite(targets).all()):
            raise DataError(f"objective.name is {self.name!r}, but some targets are not finite")


@dataclass(frozen=True)
class OwnLoss:
    """The user's own loss: a function of outputs and targets that returns the batch mean as a tensor."""

    function: Function

    @property
    def name(self) -> str:
        return f"{title(self.function)} (your own loss)"

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = self._found(outputs, targets)
        if torch.is_grad_enabled() and not found.requires_grad:
            raise TrainingError(f"{self.name} gave a number that does not depend on the outputs any more")
        return found

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The batch mean, for every example of the batch."""
        return self._found(outputs, targets).expand(len(targets))

    def aligned(self, outputs: Tensor, targets: Tensor) -> Pair:
        shape = _shape(outputs, self.name)
        whole = not targets.dtype.is_floating_point
        if whole and len(shape) > 1 and shape[:1] + shape[2:] == tuple(targets.shape):
            return _scores(outputs, targets)
        return _alike(outputs, targets, self.name)

    def check(self, targets: Tensor) -> None:
        """Nothing to check: only the user knows what fits."""

    def _found(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wanted = "it should give a tensor of one finite number, the mean over the batch"
        try:
            found = self.function(outputs, targets)
        except Exception as error:  # the user's function can fail in any way
            inputs = f"outputs of shape {_shape(outputs, self.name)}, targets of {tuple(targets.shape)}"
            raise TrainingError(f"{self.name} failed on {inputs}: {said(error)}") from error
        if not isinstance(found, Tensor):
            raise TrainingError(f"{self.name} gave a {type(found).__name__}; {wanted}")
        if found.numel() != 1 or not found.dtype.is_floating_point:
            raise TrainingError(f"{self.name} gave {found.dtype} of shape {tuple(found.shape)}; {wanted}")
        if not bool(torch.isfinite(found)):
            raise TrainingError(f"{self.name} gave {float(found.detach())}; {wanted}")
        return found.reshape(())


CROSS_ENTROPY = CrossEntropy()
LOSSES: dict[str, Callable[[float], Loss]] = {
    "cross_entropy": CrossEntropy,
    "next_token": NextToken,
    "binary_cross_entropy": lambda _: BinaryCrossEntropy(),
    "mean_squared_error": lambda _: MeanSquaredError(),
}
"""by name, from the label smoothing"""


def title(function: object) -> str:
    """The name of a user's function, or of its type if it has none."""
    return str(getattr(function, "__name__", type(function).__name__))


def misfit(name: str, outputs: Tensor, targets: Tensor, wanted: str) -> TrainingError:
    """The error for outputs that do not fit their targets."""
    return TrainingError(
        f"{name}: the model's outputs have shape {tuple(outputs.shape)} and the targets "
        f"{tuple(targets.shape)}; {wanted}"
    )


def _cross_entropy(scores: Tensor, targets: Tensor, reduction: str, smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(scores, targets, reduction=reduction, label_smoothing=smoothing)


def _shape(outputs: Any, name: str) -> tuple[int, ...]:
    if not isinstance(outputs, Tensor):
        raise TrainingError(f"{name}: the model gave a {type(outputs).__name__}; it should give a tensor")
    return tuple(outputs.shape)


def _scores(outputs: Tensor, targets: Tensor) -> Pair:
    """Scores of the classes along the second axis as (m, classes), and (m,) classes."""
    if outputs.dim() == 2:
        return outputs, targets
    return outputs.movedim(1, -1).flatten(0, -2), targets.flatten()


def _alike(outputs: Tensor, targets: Tensor, name: str) -> Pair:
    shape = _shape(outputs, name)
    if shape == (*targets.shape, 1) and targets.dim() == 1:
        return outputs.squeeze(1), targets
    if shape != tuple(targets.shape):
        raise misfit(name, outputs, targets, "it takes both of one shape, or outputs (n, 1) and targets (n,)")
    return outputs, targets


def _check_whole(targets: Tensor, name: str, what: str) -> None:
    if targets.dtype.is_floating_point:
        raise DataError(
            f"objective.name is {name!r}, but targets are {targets.dtype}; it takes {what} numbers "
            "(torch.int64)"
        )
    if int(targets.min()) < 0:
        raise DataError(
            f"objective.name is {name!r}, but there is a target {int(targets.min())}; {what} numbers start "
            "at 0"
        )
