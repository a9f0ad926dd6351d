"""ADP: everyone trains the whole dense model; one tau for all, chosen anew each round for the time budget.

Each client measures, on one batch, loss and gradient at the weights it received and at those it ends with.
From the means of their Lipschitz constant rho and smoothness beta, and the divergence delta of their
gradients, the server predicts for every tau how far training would get within the budget, and takes the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from heroes.fleet.costs import Costs
from heroes.messages import Assignment, Cohort, Facts, Floats, Plan, Selection, ServerState, Tensors, Update
from heroes.models.family import Family
from heroes.planning.loads import load_of, same_tau_plan
from heroes.planning.schedule import LearningRate
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import Cut, Overlay, overlay_mean

_SMALLEST_BETA = 1e-5


@dataclass(frozen=True)
class AdpMemory:
    """The last tau, and the estimates it will be changed by."""

    tau: int
    lipschitz: float | None = None  # rho
    smoothness: float | None = None  # beta
    divergence: float | None = None  # delta


State = ServerState[AdpMemory]


@dataclass(frozen=True)
class Adp:
    """The scheme's settings. `time_budget` is R, the seconds the whole run may take; None means what `tau_max
    / 2` would take.
    """

    family: Family
    costs: Costs
    learning_rate: LearningRate
    rounds: int
    tau_first: int = 1
    tau_max: int = 100
    phi: float = 5e-5
    time_budget: float | None = None
    count_download: bool = True
    overlay: Overlay = overlay_mean

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.family.max_width,)

    def begin(self, seed: int) -> State:
        return ServerState(0, self.family.initial_weights(seed), AdpMemory(self.tau_first))

    def cut(self, selection: Selection) -> Cut:
        """Everything."""
        return self.family.cut_weights(selection.groups)

    def serve(self, width: int) -> Selection:
        return grid_selection(tuple(range(width)), self.family.max_width)

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """The whole model for all, and the tau that promises most within the budget."""
        widths = np.full(len(cohort), self.family.max_width, dtype=np.int64)
        load = load_of(cohort, widths, self.costs, probes=1, count_download=self.count_download)
        eta = self.learning_rate.at(state.round)
        tau = self._tau(state.memory, eta, float(load.mu.max()), float(load.nu.max()))
        return same_tau_plan(state.round, cohort, load, eta, self.serve, tau, rule="budget")

    def _tau(self, memory: AdpMemory, eta: float, step: float, aggregation: float) -> int:
        if memory.lipschitz is None or memory.smoothness is None or memory.divergence is None:
            return memory.tau
        budget = self.time_budget
        if budget is None:
            budget = self.rounds * (self.tau_max / 2 * step + aggregation)
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

    def aggregate(
        self, state: State, plan: Plan, answers: Iterable[tuple[Assignment, Update]]
    ) -> tuple[State, Facts]:
        """The plain mean over clients; the estimates weighted by their samples."""
        seen: list[Update] = []
        tensors = self.overlay(state.tensors, self._parts(answers, seen))
        memory = _memory(plan.assignments[0].tau, seen, state.memory)
        return replace(state, round=state.round + 1, tensors=tensors, memory=memory), {}

    def _parts(
        self, answers: Iterable[tuple[Assignment, Update]], seen: list[Update]
    ) -> Iterator[tuple[Cut, Tensors]]:
        for assignment, update in answers:
            seen.append(replace(update, tensors={}))
            yield self.cut(assignment.selection), update.tensors


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
    """G(tau): what the loss will be bounded by after spending the budget on rounds of tau steps; less is
    better.

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


def _memory(tau: int, seen: list[Update], before: AdpMemory) -> AdpMemory:
    """Sample-weighted means of rho and beta; delta = sum_i D_i |g_i - g| / D with g the weighted mean
    gradient.
    """

    def mean(values: list[float | None], last: float | None) -> float | None:
        usable = [
            (v, u.samples) for v, u in zip(values, seen, strict=True) if v is not None and math.isfinite(v)
        ]
        total = sum(samples for _, samples in usable)
        return sum(v * samples for v, samples in usable) / total if total else last

    gradients: list[tuple[Tensor, int]] = [
        (u.extras["gradient"].double(), u.samples)
        for u in seen
        if "gradient" in u.extras and bool(torch.isfinite(u.extras["gradient"]).all())
    ]
    divergence = before.divergence
    if gradients:
        weights = torch.tensor([samples for _, samples in gradients], dtype=torch.float64)
        stacked = torch.stack([g for g, _ in gradients])
        centre = (weights[:, None] * stacked).sum(0) / weights.sum()
        divergence = float((weights * (stacked - centre).norm(dim=1)).sum() / weights.sum())
    return AdpMemory(
        tau,
        lipschitz=mean([u.measured.get("lipschitz") for u in seen], before.lipschitz),
        smoothness=mean([u.measured.get("smoothness") for u in seen], before.smoothness),
        divergence=divergence,
    )
