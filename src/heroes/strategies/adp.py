"""ADP: everyone trains the whole dense model; one tau for all, chosen anew each round for the time budget.

Each client measures the loss and its gradient on one batch, at the weights it received and at those it ends
with. From the means of their Lipschitz constants rho and smoothness beta, and from how far their gradients
are apart (delta), the server predicts for every tau how far training would get within the budget, and takes
the best. It needs distances between gradients only, so clients send a sketch of a thousand numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, Self, TypeVar

import numpy as np
from pydantic import model_validator

from heroes.fields import Positive, Whole
from heroes.messages import Cohort, Facts, Floats, Plan, ServerState, Update
from heroes.planning.belief import believed, bounded
from heroes.planning.loads import Load
from heroes.slices.cuts import Part
from heroes.strategies.base import Answers, Duties, Strategy

_SMALLEST_BETA = 1e-5
_PHIS = 1e-60, 1e15  # what is tried when phi is calibrated
_OLD = 0.5  # the weight of earlier rounds in an estimate


@dataclass(frozen=True)
class AdpMemory:
    """The last tau, phi if it was calibrated, and the estimates that decide the next tau."""

    tau: int
    phi: float | None
    lipschitz: float | None = None  # rho
    smoothness: float | None = None  # beta
    divergence: float | None = None  # delta

    def fits(self, begin: AdpMemory) -> bool:
        """Whether a run that began so can have come to this: a checkpoint from outside may say anything."""
        return self.tau >= 1 and (self.phi is None or 0 < self.phi < math.inf)


State = ServerState[AdpMemory]
T = TypeVar("T")


class Adp(Strategy):
    """The dense model with one tau for all, adapted to the time budget.

    The budget R is `federation.time_budget`; without one, it is what all rounds would take with `tau_first`
    steps each.
    """

    name: Literal["adp"] = "adp"
    """the strategy"""
    tau_first: Whole = 10
    """local steps of everyone until there are estimates, and with phi = auto the first tau that they give"""
    tau_max: Whole = 100
    """most local steps"""
    phi: Positive | Literal["auto"] = "auto"
    """how much drift between clients counts in the choice of tau: larger values give fewer steps; auto is the
    value with which the first tau that is computed is tau_first
    """

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
        from heroes.client.extras import SKETCH

        return Duties(probes=1, sends=(SKETCH,))

    def reveals(self) -> str | None:
        return "what ADP sends beside the model (sketches of gradients, estimates); use another strategy"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.family.max_width,)

    def begin(self, seed: int) -> State:
        return ServerState(0, self.family.initial_weights(seed), AdpMemory(self.tau_first, None))

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """The whole model for all, and the tau that promises most within the budget.

        Clients measure in every `training.probe_every`th round. Of the two gradients they take, the first is
        that of a first step, which they need anyway: one is extra.
        """
        probing = state.round % self.ground.probe_every == 0
        load = self.load(cohort, gradients=int(probing))
        tau, phi = self._tau(state, load)
        plan = self.same_tau(state, cohort, load, tau, "budget", probing)
        return replace(plan, facts={**plan.facts, "phi": phi})

    def _tau(self, state: State, load: Load) -> tuple[int, float | None]:
        """The best tau by the estimates, and the phi behind it; the last tau while an estimate is missing."""
        memory, rate = state.memory, self.ground.learning_rate.at(state.round)
        rho, beta, delta = memory.lipschitz, memory.smoothness, memory.divergence
        if rho is None or beta is None or delta is None:
            return memory.tau, memory.phi
        step, aggregation = float(load.mu.max()), float(load.nu.max())
        budget = self.ground.time_budget or self.ground.rounds * (self.tau_first * step + aggregation)

        def loss_bound(taus: Floats, phi: float) -> Floats:
            return objective(taus, rho, beta, delta, rate, phi, budget, step, aggregation)

        phi = self.phi if self.phi != "auto" else memory.phi or calibrated(loss_bound, self.tau_first)
        if phi is None:
            return memory.tau, None
        candidates = np.arange(1, min(10 * memory.tau, self.tau_max) + 1, dtype=float)
        return int(candidates[int(np.argmin(loss_bound(candidates, phi)))]), phi

    def aggregate(self, state: State, plan: Plan, answers: Answers) -> tuple[State, Facts]:
        """The plain mean over clients; estimates are weighted by samples and averaged over rounds."""
        seen: list[Update] = []
        tensors = self.ground.overlay(state.tensors, self._parts(answers, seen))
        phi = plan.facts["phi"] if self.phi == "auto" else None
        memory = _memory(plan.assignments[0].tau, phi, seen, state.memory)
        after = replace(state, round=state.round + 1, tensors=tensors, memory=memory)
        return after, {"estimates": _estimates(memory)}

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


def calibrated(loss_bound: Callable[[Floats, float], Floats], tau: int) -> float | None:
    """The phi that makes this tau the best, by bisection; None where no phi does, as without any drift.

    That is where half a step less and half a step more promise the same.
    """
    around = np.array([tau - 0.5, tau + 0.5])

    def calls_for_more(exponent: float) -> bool:
        less, more = loss_bound(around, math.exp(exponent)).tolist()
        return bool(more < less)

    low, high = map(math.log, _PHIS)
    if not calls_for_more(low) or calls_for_more(high):
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if calls_for_more(middle) else (low, middle)
    return math.exp(low)


def _estimates(memory: AdpMemory) -> dict[str, float | None]:
    return {name: value for name, value in asdict(memory).items() if name not in ("tau", "phi")}


def _memory(tau: int, phi: float | None, seen: Sequence[Update], before: AdpMemory) -> AdpMemory:
    """Sample-weighted means of rho and beta, and delta, each averaged with its last value."""
    seen = _with_bounded_samples(seen)

    def mean(name: str) -> float | None:
        told = [(u.measured[name], u.samples) for u in seen if math.isfinite(u.measured.get(name, math.nan))]
        told = _believed(told, [value for value, _ in told])
        total = sum(samples for _, samples in told)
        return sum(value * samples for value, samples in told) / total if total else None

    return AdpMemory(
        tau,
        phi,
        lipschitz=_averaged(before.lipschitz, mean("lipschitz")),
        smoothness=_averaged(before.smoothness, mean("smoothness")),
        divergence=_averaged(before.divergence, divergence(seen)),
    )


def _averaged(before: float | None, now: float | None) -> float | None:
    """An estimate with its last value in it; what nobody could tell keeps that."""
    if before is None or now is None:
        return before if now is None else now
    return _OLD * before + (1 - _OLD) * now


def _with_bounded_samples(seen: Sequence[Update]) -> list[Update]:
    """The updates without shares of data so large that one of them would outweigh the others."""
    samples = bounded([u.samples for u in seen])
    return [replace(u, samples=int(most)) for u, most in zip(seen, samples, strict=True)]


def _believed(told: Sequence[T], sizes: Sequence[float]) -> list[T]:
    """Those whose size is believed."""
    return [one for one, good in zip(told, believed(sizes), strict=True) if good]


def divergence(seen: Sequence[Update]) -> float | None:
    """delta = sum_i D_i |g_i - g| / D, with g the sample-weighted mean of the clients' gradients g_i.

    It is computed from their sketches, which keep distances; None if nobody sent one.
    """
    import torch

    told = [(u.extras["sketch"].double(), u.samples) for u in seen if "sketch" in u.extras]
    told = [(sketch, samples) for sketch, samples in told if bool(torch.isfinite(sketch).all())]
    told = _believed(told, [float(sketch.norm()) for sketch, _ in told])
    if not told:
        return None
    weights = torch.tensor([samples for _, samples in told], dtype=torch.float64)
    stacked = torch.stack([sketch for sketch, _ in told])
    centre = (weights[:, None] * stacked).sum(0) / weights.sum()
    return float((weights * (stacked - centre).norm(dim=1)).sum() / weights.sum())
