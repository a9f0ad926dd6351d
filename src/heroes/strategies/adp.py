"""ADP: everyone trains the whole dense model; one tau for all, chosen anew each round for the time budget.

Each client measures, on one batch, loss and gradient at the weights it received and at those it ends with.
From the means of their Lipschitz constant rho and smoothness beta, and the divergence delta of their
gradients, the server predicts for every tau how far training would get within the budget, and takes the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeVar

import numpy as np
from pydantic import model_validator

from heroes.fields import Positive, Whole
from heroes.messages import Cohort, Facts, Floats, Plan, ServerState, Update
from heroes.planning.belief import believed, bounded
from heroes.slices.cuts import Part
from heroes.strategies.base import Answers, Duties, Strategy

_SMALLEST_BETA = 1e-5


@dataclass(frozen=True)
class AdpMemory:
    """The last tau, and the estimates it will be changed by."""

    tau: int
    lipschitz: float | None = None  # rho
    smoothness: float | None = None  # beta
    divergence: float | None = None  # delta

    def fits(self, begin: AdpMemory) -> bool:
        """Whether a run that began so can have come to this: a checkpoint from outside may say anything."""
        return self.tau >= 1


State = ServerState[AdpMemory]
T = TypeVar("T")


class Adp(Strategy):
    """The dense model with one tau for all, adapted to the time budget.

    The budget R is `federation.time_budget`; without one, what `tau_max / 2` steps would take in every round.
    """

    name: Literal["adp"] = "adp"
    """the strategy"""
    tau_first: Whole = 1
    """local steps of everyone in the first round"""
    tau_max: Whole = 100
    """most local steps"""
    phi: Positive = 5e-5
    """the control parameter of the search: smaller values count drift between clients for more"""

    colour = "#E69F00"
    marker = "D"

    @model_validator(mode="after")
    def _tau_in_order(self) -> Self:
        if self.tau_first > self.tau_max:
            raise ValueError(
                f"tau_first is {self.tau_first} but tau_max is {self.tau_max}; tau_first must not be larger"
            )
        return self

    def duties(self, probes: int) -> Duties:
        from heroes.client.extras import GRADIENT

        return Duties(probes=1, sends=(GRADIENT,))

    def reveals(self) -> str | None:
        return "what ADP sends beside the model (gradients, estimates); use another strategy"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.family.max_width,)

    def begin(self, seed: int) -> State:
        return ServerState(0, self.family.initial_weights(seed), AdpMemory(self.tau_first))

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """The whole model for all, and the tau that promises most within the budget."""
        load = self.load(cohort, probes=1)
        rate = self.ground.learning_rate.at(state.round)
        tau = self._tau(state.memory, rate, float(load.mu.max()), float(load.nu.max()))
        return self.same_tau(state, cohort, load, tau, rule="budget")

    def _tau(self, memory: AdpMemory, eta: float, step: float, aggregation: float) -> int:
        if memory.lipschitz is None or memory.smoothness is None or memory.divergence is None:
            return memory.tau
        budget = self.ground.time_budget
        if budget is None:
            budget = self.ground.rounds * (self.tau_max / 2 * step + aggregation)
        candidates = np.arange(1, min(10 * memory.tau, self.tau_max) + 1, dtype=float)
        promise = objective(
            candidates,
            memory.lipschitz,
            memory.smoothness,
            memory.divergence,
            eta,
            self.phi,
            budget,
            step,
            aggregation,
        )
        return int(candidates[int(np.argmin(promise))])

    def aggregate(self, state: State, plan: Plan, answers: Answers) -> tuple[State, Facts]:
        """The plain mean over clients; the estimates weighted by their samples."""
        seen: list[Update] = []
        tensors = self.ground.overlay(state.tensors, self._parts(answers, seen))
        memory = _memory(plan.assignments[0].tau, seen, state.memory)
        return replace(state, round=state.round + 1, tensors=tensors, memory=memory), {}

    def _parts(self, answers: Answers, seen: list[Update]) -> Iterator[Part]:
        for assignment, update in answers:
            seen.append(replace(update, tensors={}))
            yield self.part(assignment, update)


def objective(
    tau: Floats,
    rho: float,
    beta: float,
    delta: float,
    eta: float,
    phi: float,
    budget: float,
    step: float,
    aggregation: float,
) -> Floats:
    """G(tau): a bound on the loss after spending the budget on rounds of tau steps; less is better.

    h(tau) = (delta/beta) ((eta beta + 1)^tau - 1) - eta delta tau is how far clients drift apart, and T(tau)
    = (R - b - c) tau / (c tau + b) the local steps the budget allows, with c seconds a step and b an
    aggregation.
    """
    beta = max(beta, _SMALLEST_BETA)
    with np.errstate(over="ignore", invalid="ignore"):
        drift = np.maximum(0.0, delta / beta * (np.power(eta * beta + 1, tau) - 1) - eta * delta * tau)
        steps = max(budget - aggregation - step, step) * tau / (step * tau + aggregation)
        root = np.sqrt(1 + 4 * phi * rho * eta * steps**2 * drift / tau)
        value = (1 + root) / (2 * eta * phi * steps) + rho * drift
    return np.where(np.isfinite(value), value, np.inf)


def _memory(tau: int, seen: Sequence[Update], before: AdpMemory) -> AdpMemory:
    """Sample-weighted means of rho and beta, and delta; what nobody could tell keeps its last value."""
    seen = _with_bounded_samples(seen)

    def mean(name: str, last: float | None) -> float | None:
        told = [(u.measured[name], u.samples) for u in seen if math.isfinite(u.measured.get(name, math.nan))]
        told = _believed(told, [value for value, _ in told])
        total = sum(samples for _, samples in told)
        return sum(value * samples for value, samples in told) / total if total else last

    return AdpMemory(
        tau,
        lipschitz=mean("lipschitz", before.lipschitz),
        smoothness=mean("smoothness", before.smoothness),
        divergence=divergence(seen, before.divergence),
    )


def _with_bounded_samples(seen: Sequence[Update]) -> list[Update]:
    """The updates without shares of data so large that one of them would outweigh the others."""
    samples = bounded([u.samples for u in seen])
    return [replace(u, samples=int(most)) for u, most in zip(seen, samples, strict=True)]


def _believed(told: Sequence[T], sizes: Sequence[float]) -> list[T]:
    """Those whose size is believed."""
    return [one for one, good in zip(told, believed(sizes), strict=True) if good]


def divergence(seen: Sequence[Update], last: float | None) -> float | None:
    """delta = sum_i D_i |g_i - g| / D, with g the sample-weighted mean of the clients' gradients g_i."""
    import torch

    told = [(u.extras["gradient"].double(), u.samples) for u in seen if "gradient" in u.extras]
    told = [(gradient, samples) for gradient, samples in told if bool(torch.isfinite(gradient).all())]
    told = _believed(told, [float(gradient.norm()) for gradient, _ in told])
    if not told:
        return last
    weights = torch.tensor([samples for _, samples in told], dtype=torch.float64)
    stacked = torch.stack([gradient for gradient, _ in told])
    centre = (weights[:, None] * stacked).sum(0) / weights.sum()
    return float((weights * (stacked - centre).norm(dim=1)).sum() / weights.sum())
