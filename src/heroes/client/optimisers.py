"""Local optimisers: how a client moves its parameters. What they remember starts from zero in every round.

They are single calls of what torch's optimiser objects come to, without the Python around it. The fused
updates count on gradients lying in memory like their parameters, as `backward` leaves them. The virtual clock
charges a step by the FLOPs of its gradient, whichever optimiser takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

Step = Callable[[float], None]


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum and an L2 penalty."""

    momentum: float = 0.9
    weight_decay: float = 0.0

    def begin(self, parameters: Sequence[nn.Parameter]) -> Step:
        momenta = [torch.zeros_like(p) for p in parameters]

        @torch.no_grad()
        def step(learning_rate: float) -> None:
            reached = _reached(parameters)
            # what torch's functional `sgd` comes to after sorting them by device and type, every time anew
            torch._fused_sgd_(
                [parameters[n] for n in reached],
                _gradients(parameters),
                [momenta[n] for n in reached] if self.momentum else [],
                weight_decay=self.weight_decay,
                momentum=self.momentum,
                lr=learning_rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )

        return step


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def begin(self, parameters: Sequence[nn.Parameter]) -> Step:
        means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        counts = [torch.zeros((), device=p.device) for p in parameters]

        def step(learning_rate: float) -> None:
            reached = _reached(parameters)
            with torch.no_grad():
                adamw(
                    [parameters[n] for n in reached],
                    _gradients(parameters),
                    [means[n] for n in reached],
                    [squares[n] for n in reached],
                    [],
                    [counts[n] for n in reached],
                    fused=_fused(parameters),
                    amsgrad=False,
                    beta1=self.beta1,
                    beta2=self.beta2,
                    lr=learning_rate,
                    weight_decay=self.weight_decay,
                    eps=self.epsilon,
                    maximize=False,
                )

        return step


def _reached(parameters: Sequence[nn.Parameter]) -> list[int]:
    """Which parameters have a gradient."""
    return [n for n, p in enumerate(parameters) if p.grad is not None]


def _gradients(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


def _fused(parameters: Sequence[nn.Parameter]) -> bool:
    return all(p.device.type in ("cpu", "cuda") for p in parameters)
