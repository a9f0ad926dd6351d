"""Turns a round's mean change into the server's step, after `aggregate` and privacy's noise.

Every element moves on its own, and only if somebody trained it; otherwise the value and its moments stay.
Arithmetic is in double precision; values keep their type, and moments are kept in float32.

>>> import torch
>>> momentum = Momentum(rate=0.5, beta=0.9)
>>> step, after = momentum.step(torch.tensor([2.0]), {"momentum": torch.tensor([10.0])}, round_number=1)
>>> step.tolist(), after["momentum"].tolist()
([5.5], [11.0])
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from heroes.contracts import ServerOptimiser
from heroes.errors import TrainingError
from heroes.messages import Tensors

Moments = Mapping[str, Tensors]  # by kind, then by tensor


@dataclass(frozen=True)
class Momentum:
    """m = beta m + change, and w moves by rate m (FedAvgM)."""

    rate: float = 1.0
    beta: float = 0.9
    name: str = "momentum"
    moments: tuple[str, ...] = ("momentum",)

    def step(
        self, change: Tensor, moments: Mapping[str, Tensor], round_number: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        momentum = self.beta * moments["momentum"] + change
        return self.rate * momentum, {"momentum": momentum}


@dataclass(frozen=True)
class Adam:
    """m = beta1 m + (1 - beta1) change, v = beta2 v + (1 - beta2) change^2, and w moves by
    rate c m / (sqrt(v) + epsilon), where c = sqrt(1 - beta2^round) / (1 - beta1^round) (FedAdam).
    """

    rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3
    name: str = "adam"
    moments: tuple[str, ...] = ("first", "second")

    def step(
        self, change: Tensor, moments: Mapping[str, Tensor], round_number: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        first = self.beta1 * moments["first"] + (1 - self.beta1) * change
        second = self.second(moments["second"], change.square())
        correction = math.sqrt(1 - self.beta2**round_number) / (1 - self.beta1**round_number)
        step = self.rate * correction * first / (second.sqrt() + self.epsilon)
        return step, {"first": first, "second": second}

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """The mean of squares, from the one before and the newest square."""
        return self.beta2 * before + (1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(Adam):
    """The same with v = v - (1 - beta2) change^2 sign(v - change^2): it falls no faster than it rises."""

    name: str = "yogi"

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        return before - (1 - self.beta2) * square * torch.sign(before - square)


def optimised(
    optimiser: ServerOptimiser,
    before: Tensors,
    after: Tensors,
    holders: Tensors,
    moments: Moments,
    round_number: int,
) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """The model and the moments after the optimiser's own step of the round's change.

    `holders` says how many clients trained each element, as `heroes.slices.overlays.holders` counts them; a
    tensor that nobody trained is not in it.
    """
    values = dict(after)
    kept = {kind: dict(moments.get(kind, {})) for kind in optimiser.moments}
    for name, count in holders.items():
        old = before[name].double()
        mine = {kind: _moment(of_kind.get(name), old) for kind, of_kind in kept.items()}
        step, new = optimiser.step(after[name].double() - old, mine, round_number)
        values[name] = torch.where(count > 0, old + step, old).to(before[name].dtype)
        for kind, of_kind in kept.items():
            of_kind[name] = torch.where(count > 0, new[kind], mine[kind]).float()
        if not bool(torch.isfinite(values[name]).all()):
            raise TrainingError(
                f"the server optimiser {optimiser.name!r} made {name} infinite in round {round_number}; "
                "use a smaller optimiser.rate or a larger optimiser.epsilon"
            )
    return values, kept


def _moment(moment: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if moment is None else moment.double()


def weight_of_past(weight: float, rounds: int, lookback: float = 1.0) -> float:
    """What the average before counts for in this round, so that the start of the model counts for nothing.

    An average of which w is the past and 1 - w is new is w / (1 - w) rounds old: at most `lookback` of the
    rounds so far. So it does not hold a short run back, and is as smooth as `weight` makes it in a long one.

    >>> [round(weight_of_past(0.8, number), 3) for number in (1, 2, 3, 50)]
    [0.0, 0.444, 0.59, 0.8]
    >>> [round(weight_of_past(0.8, number, lookback=0.1), 3) for number in (1, 2, 10, 50)]
    [0.0, 0.167, 0.5, 0.8]
    """
    oldest = lookback * rounds
    return min(weight * (1 - weight ** (rounds - 1)) / (1 - weight**rounds), oldest / (1 + oldest))


def averaged(average: Tensors, new: Tensors, holders: Tensors, weight: float) -> dict[str, Tensor]:
    """The moving average after a round: weight * average + (1 - weight) * new, where anybody trained."""
    after = dict(average)
    for name, count in holders.items():
        old = average[name].double()
        mean = weight * old + (1 - weight) * new[name].double()
        after[name] = torch.where(count > 0, mean, old).to(average[name].dtype)
    return after
