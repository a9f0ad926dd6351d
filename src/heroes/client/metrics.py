"""Metrics: how good a model is, over the whole test set and not as a mean of batches.

What is built in streams: every chunk of the test set gives a small statistic, and statistics are merged. A
function of the user's sees all outputs and targets at once, unless it is an object that streams too.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from heroes.client.losses import Function, misfit
from heroes.contracts import Loss, Metric
from heroes.errors import ConfigError, TrainingError, said


@dataclass(frozen=True)
class _Mean(ABC):
    """A sum over all predictions, divided by their number."""

    loss: Loss
    lower_is_better: ClassVar[bool] = True

    @abstractmethod
    def counted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What every prediction adds to the sum."""

    def start(self, outputs: Tensor, targets: Tensor) -> list[float]:
        values = self.counted(outputs, targets)
        return [float(values.to("cpu", torch.float64).sum()), values.numel()]

    def merge(self, first: list[float], second: list[float]) -> list[float]:
        return [a + b for a, b in zip(first, second, strict=True)]

    def finish(self, statistic: list[float]) -> float:
        total, answers = statistic
        return total / answers


@dataclass(frozen=True)
class MeanLoss(_Mean):
    """The test loss."""

    name: ClassVar[str] = "loss"

    def counted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss.each(outputs, targets)


@dataclass(frozen=True)
class Perplexity(MeanLoss):
    """exp of the test loss: among how many equally likely classes or tokens the model seems to choose."""

    name: ClassVar[str] = "perplexity"

    def finish(self, statistic: list[float]) -> float:
        mean = super().finish(statistic)
        return math.exp(mean) if mean < 700 else mean * math.inf


@dataclass(frozen=True)
class Accuracy(_Mean):
    """The share of right predictions."""

    name: ClassVar[str] = "accuracy"
    lower_is_better: ClassVar[bool] = False

    def counted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, wanted = self.loss.aligned(outputs, targets)
        if scores.dim() == wanted.dim():
            return (scores > 0) == (wanted > 0.5)
        return scores.argmax(dim=1) == wanted


@dataclass(frozen=True)
class Rmse(_Mean):
    """The root of the mean squared error, over all values of all examples."""

    name: ClassVar[str] = "rmse"

    def counted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _errors(self, outputs, targets).square()

    def finish(self, statistic: list[float]) -> float:
        return math.sqrt(super().finish(statistic))


@dataclass(frozen=True)
class Mae(_Mean):
    """The mean absolute error, over all values of all examples."""

    name: ClassVar[str] = "mae"

    def counted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _errors(self, outputs, targets).abs()


@dataclass(frozen=True)
class F1:
    """The mean over classes of 2 * right / (predicted + true), over all classes that occur in either.

    If outputs mean yes or no, each of them is a class, and yes is what counts.
    """

    loss: Loss
    name: ClassVar[str] = "f1"
    lower_is_better: ClassVar[bool] = False

    def start(self, outputs: Tensor, targets: Tensor) -> list[list[int]]:
        scores, wanted = self.loss.aligned(outputs, targets)
        if scores.dim() == wanted.dim():
            said_yes, true = (scores > 0).reshape(len(scores), -1), (wanted > 0.5).reshape(len(wanted), -1)
            return [part.sum(dim=0).tolist() for part in (said_yes & true, said_yes, true)]
        found, classes = scores.argmax(dim=1), scores.shape[1]
        parts = (found[found == wanted], found, wanted)
        return [torch.bincount(part, minlength=classes).tolist() for part in parts]

    def merge(self, first: list[list[int]], second: list[list[int]]) -> list[list[int]]:
        pairs = zip(first, second, strict=True)
        return [[a + b for a, b in zip(one, other, strict=True)] for one, other in pairs]

    def finish(self, statistic: list[list[int]]) -> float:
        each = [
            2 * right / (found + true) for right, found, true in zip(*statistic, strict=True) if found + true
        ]
        return sum(each) / len(each) if each else 0.0


METRICS: dict[str, Callable[[Loss], Metric]] = {
    "accuracy": Accuracy,
    "f1": F1,
    "rmse": Rmse,
    "mae": Mae,
    "perplexity": Perplexity,
    "loss": MeanLoss,
}


def _errors(metric: Rmse | Mae, outputs: Tensor, targets: Tensor) -> Tensor:
    found, wanted = metric.loss.aligned(outputs, targets)
    if found.shape != wanted.shape:
        raise misfit(f"metric {metric.name!r}", outputs, targets, "it takes both of one shape")
    return found.to("cpu", torch.float64) - wanted.to("cpu", torch.float64)


@dataclass(frozen=True)
class Whole:
    """The user's own function, which needs the whole test set at once.

    All outputs and targets are kept in the memory of the leading process until the model is tested: four
    bytes for every output, and four or eight for every target. An object with `start`, `merge` and `finish`
    takes next to nothing.
    """

    name: str
    function: Function
    lower_is_better: bool = False

    def of(self, outputs: Tensor, targets: Tensor) -> float:
        try:
            found = self.function(outputs, targets)
        except Exception as error:  # the user's function can fail in any way
            shapes = f"outputs of shape {tuple(outputs.shape)}, targets of {tuple(targets.shape)}"
            raise TrainingError(f"{_own(self.name)} failed on {shapes}: {said(error)}") from error
        value = _number(self.name, found)
        if math.isnan(value) and bool(torch.isfinite(outputs).all()):
            raise TrainingError(f"{_own(self.name)} gave nan; it should give a number")
        return value


@dataclass(frozen=True)
class Streamed:
    """The user's own object with `start`, `merge` and `finish`, as in `heroes.contracts.Metric`."""

    name: str
    parts: Any
    lower_is_better: bool = False

    def start(self, outputs: Tensor, targets: Tensor) -> Any:
        return self._plain("start", outputs, targets)

    def merge(self, first: Any, second: Any) -> Any:
        return self._plain("merge", first, second)

    def finish(self, statistic: Any) -> float:
        value = _number(self.name, self._called("finish", statistic))
        if math.isnan(value):
            raise TrainingError(f"{_own(self.name)} gave nan; it should give a number")
        return value

    def _called(self, method: str, *given: Any) -> Any:
        try:
            return getattr(self.parts, method)(*given)
        except Exception as error:  # the user's object can fail in any way
            raise TrainingError(f"{_own(self.name)} failed in {method}: {said(error)}") from error

    def _plain(self, method: str, *given: Any) -> Any:
        """What a method returns, as it looks after travelling as JSON."""
        found = self._called(method, *given)
        try:
            return json.loads(json.dumps(found))
        except (TypeError, ValueError) as error:
            raise TrainingError(
                f"{_own(self.name)} gave a statistic that is not made of plain numbers, words, lists and "
                f"mappings ({error}); {method} should give one that is"
            ) from error


@dataclass(frozen=True)
class Directed:
    """A metric of the user's, and whether lower is better. It can still be called."""

    function: Any
    lower_is_better: bool

    def __call__(self, outputs: Any, targets: Any) -> Any:
        return self.function(outputs, targets)


def metric(function: Any, *, lower_is_better: bool = False) -> Directed:
    """Say of a metric of your own whether lower values are better.

    Args:
        function: takes the outputs and targets of the whole test set and gives one number; or it is an object
            with the methods of `heroes.contracts.Metric`, for test sets whose outputs do not fit into memory.
        lower_is_better: as of an error.

    >>> worst = metric(lambda outputs, targets: (outputs - targets).abs().max(), lower_is_better=True)
    >>> float(worst(torch.tensor([1.0, 4.0]), torch.tensor([1.5, 2.0])))
    2.0
    """
    return Directed(function, lower_is_better)


def own_metric(name: str, given: Any) -> Metric | Whole:
    """The user's own metric under this name."""
    lower = getattr(given, "lower_is_better", False)
    if not isinstance(lower, bool):
        raise ConfigError(f"metrics[{name!r}].lower_is_better is {lower!r}; it should be True or False")
    inner = given.function if isinstance(given, Directed) else given
    if all(callable(getattr(inner, method, None)) for method in ("start", "merge", "finish")):
        return Streamed(name, inner, lower)
    if not callable(inner):
        raise ConfigError(
            f"metrics[{name!r}] is a {type(inner).__name__}; give a function of (outputs, targets), or an "
            "object with start, merge and finish"
        )
    return Whole(name, inner, lower)


def _own(name: str) -> str:
    return f"metric {name!r} (your own)"


def _number(name: str, found: Any) -> float:
    """The number that a user's metric returned, or a TrainingError."""
    try:
        if isinstance(found, (str, bytes)):
            raise TypeError
        return float(found)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = f" of shape {tuple(found.shape)}" if hasattr(found, "shape") else ""
        raise TrainingError(
            f"{_own(name)} gave a {type(found).__name__}{shape}; it should give one number"
        ) from error
