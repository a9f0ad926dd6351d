"""Heroes: enhanced neural composition with adaptive local updates.

Each client gets the widest slice whose step it can afford, the least trained blocks of it, and as many local
steps as let everyone finish together while the blocks stay evenly trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from heroes.fleet.costs import Costs
from heroes.messages import (
    Assignment,
    Cohort,
    Facts,
    Floats,
    Integers,
    Plan,
    Selection,
    ServerState,
    Tensors,
    Update,
)
from heroes.models.family import Family
from heroes.planning.loads import Load, assignments, load_of, widths_afforded
from heroes.planning.pacing import (
    Deadline,
    Estimates,
    Goal,
    Intervals,
    Limits,
    Pace,
    bound,
    fastest_deadline,
    mean_deadline,
    pace,
    step_intervals,
)
from heroes.planning.schedule import LearningRate
from heroes.slices.blocks import add_steps, grid_selection, serve
from heroes.slices.cuts import Cut, Overlay, overlay_mean

_UNREACHABLE = "strategy.threshold cannot be reached with the current estimates; the time budget or the rounds left decide"


@dataclass(frozen=True)
class HeroesMemory:
    """What Heroes remembers: steps per block, the estimates, the calibration constant of the pace, the last
    reducing error.
    """

    counters: tuple[int, ...]
    estimates: Estimates | None = None
    pace_scale: float | None = None
    reducing_error: float = 0.0


State = ServerState[HeroesMemory]


@dataclass(frozen=True)
class Heroes:
    """The scheme's settings. `step_limit` is mu_max in seconds; None: what the dense complete model takes on
    the fastest.

    `rho` is in seconds; None means a tenth of the round.
    """

    family: Family
    costs: Costs
    learning_rate: LearningRate
    rounds: int
    step_limit: float | None
    limits: Limits
    blocks: str = "grid"
    adaptive_tau: bool = True
    pace: str = "calibrated"
    deadline: str = "mean"
    rho: float | None = None
    threshold: float | None = None
    time_budget: float | None = None
    probes: int = 2
    probe_every: int = 1
    count_download: bool = True
    overlay: Overlay = overlay_mean

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(range(1, self.family.max_width + 1))

    def begin(self, seed: int) -> State:
        """Fresh factors, no block trained."""
        return ServerState(0, self.family.initial(seed), HeroesMemory((0,) * self.family.max_width**2))

    def cut(self, selection: Selection) -> Cut:
        """All of every basis, the chosen blocks, the chosen groups."""
        return self.family.cut(selection)

    def serve(self, width: int) -> Selection:
        """The leading groups and the blocks that join them."""
        return grid_selection(tuple(range(width)), self.family.max_width)

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """Width by what the device affords, then T, then blocks and tau client by client."""
        probing = state.round % self.probe_every == 0
        load = self._load(cohort, self.probes if probing else 0)
        eta = self.learning_rate.at(state.round)
        if state.round == 0 or not self.adaptive_tau:
            tau = self.limits.tau_first
            fixed, nobody = np.full(len(cohort), tau), np.zeros(len(cohort), dtype=bool)
            chosen = Pace(float(tau), max(1, self.rounds - state.round), "fixed", state.memory.pace_scale)
            seconds, intervals = None, Intervals(fixed, fixed, nobody)
        else:
            chosen, deadline = self._set_deadline(state, load, eta)
            seconds = deadline.seconds
            rho = seconds / 10 if self.rho is None else self.rho
            intervals = step_intervals(load.mu, load.nu, deadline, rho, self.limits)
        wishes = zip(load.widths.tolist(), intervals.low.tolist(), intervals.high.tolist(), strict=True)
        selections, taus = [], []
        for selection, tau in serve(self.blocks, np.array(state.memory.counters, dtype=np.int64), wishes):
            selections.append(selection)
            taus.append(tau)
        given = assignments(
            state.round + 1, cohort, load, eta, selections, taus, intervals.straggler.tolist(), probing
        )
        facts = {
            "tau_star": chosen.tau,
            "rounds_left": chosen.rounds,
            "rule": chosen.rule,
            "deadline": seconds,
            "pace_scale": chosen.scale,
            "notices": (_UNREACHABLE,) if chosen.threshold_unreachable else (),
        }
        return Plan(given, facts)

    def aggregate(
        self, state: State, plan: Plan, answers: Iterable[tuple[Assignment, Update]]
    ) -> tuple[State, Facts]:
        """Means over holders; counters and estimates from those who really answered."""
        energy = self._block_energy(state.tensors)
        alphas = tuple(float(energy.sum() - energy[list(a.selection.pieces)].sum()) for a in plan.assignments)
        seen = _Seen(np.array(state.memory.counters, dtype=np.int64))
        tensors = self.overlay(state.tensors, self._parts(answers, seen))
        estimates = mean_estimates(seen.losses, state.memory.estimates)
        answered = [
            alpha for alpha, a in zip(alphas, plan.assignments, strict=True) if a.client in seen.clients
        ]
        memory = HeroesMemory(
            tuple(seen.counters.tolist()), estimates, plan.facts["pace_scale"], max(answered, default=0.0)
        )
        after = replace(state, round=state.round + 1, tensors=tensors, memory=memory)
        return after, self._facts(memory, plan, alphas)

    def _parts(
        self, answers: Iterable[tuple[Assignment, Update]], seen: _Seen
    ) -> Iterator[tuple[Cut, Tensors]]:
        for assignment, update in answers:
            seen.counters = add_steps(seen.counters, assignment.selection.pieces, assignment.tau)
            seen.losses.append({**update.measured, "loss": update.loss})
            seen.clients.add(assignment.client)
            yield self.cut(assignment.selection), update.tensors

    def _load(self, cohort: Cohort, probes: int) -> Load:
        widths = widths_afforded(cohort, self.costs, self.step_limit)
        return load_of(cohort, widths, self.costs, probes=probes, count_download=self.count_download)

    def _set_deadline(self, state: State, load: Load, eta: float) -> tuple[Pace, Deadline]:
        """The pace aimed at and when the round should end."""
        limits = self.limits
        if self.deadline == "mean":
            chosen = self._pace(state, eta, float(load.mu.mean()), float(load.nu.mean()))
            seconds = mean_deadline(load.mu, load.nu, chosen.tau, limits.tau_min, limits.tau_max)
            return chosen, Deadline(seconds)
        paces = [self._pace(state, eta, float(load.mu[0]), float(load.nu[0]))] * len(load.mu)
        if paces[0].rule == "time":  # else the pace does not depend on the client
            paces = [
                self._pace(state, eta, mu, nu)
                for mu, nu in zip(load.mu.tolist(), load.nu.tolist(), strict=True)
            ]
        deadline = fastest_deadline(load.mu, load.nu, paces)
        assert deadline.setter is not None
        return paces[deadline.setter], deadline

    def _pace(self, state: State, eta: float, mu: float, nu: float) -> Pace:
        if self.pace == "constant":
            return Pace(float(self.limits.tau_first), max(1, self.rounds - state.round), "constant", None)
        seconds_left = None if self.time_budget is None else max(0.0, self.time_budget - state.seconds)
        return pace(
            state.memory.estimates,
            Goal(self.rounds - state.round, self.threshold, seconds_left),
            self.limits,
            learning_rate=eta,
            mu=mu,
            nu=nu,
            reducing_error=state.memory.reducing_error,
            calibrated=self.pace == "calibrated",
            scale=state.memory.pace_scale,
        )

    def _block_energy(self, tensors: Tensors) -> Floats:
        """Squared norm of every coefficient block, over all layers."""
        energy = torch.zeros(self.family.max_width**2, dtype=torch.float64)
        for p in self.family.parameters:
            if p.layout is not None:
                energy += tensors[p.coefficient].double().square().sum(dim=(1, 2))
        return energy.numpy()

    def _facts(self, memory: HeroesMemory, plan: Plan, alphas: tuple[float, ...]) -> Facts:
        tau = max(a.tau for a in plan.assignments)
        eta = plan.assignments[0].learning_rate
        estimates = memory.estimates
        smoothness = estimates.smoothness if estimates else None
        return {
            "counters": memory.counters,
            "counter_variance": float(np.var(memory.counters)),
            "estimates": estimates,
            "reducing_error": memory.reducing_error,
            "reducing_errors": alphas,
            "bound": bound(estimates, plan.facts["rounds_left"] or 1, tau, eta, memory.reducing_error)
            if estimates
            else None,
            "step_size_ok": None if smoothness is None else eta * 6 * smoothness * tau <= 1,
        }


@dataclass
class _Seen:
    """What was noted while answers streamed by."""

    counters: Integers
    losses: list[dict[str, float]] = field(default_factory=list)
    clients: set[int] = field(default_factory=set)


def mean_estimates(seen: Sequence[Mapping[str, float]], before: Estimates | None) -> Estimates | None:
    """Plain means over clients; an estimate that no client could give keeps its last value."""

    def mean(name: str) -> float | None:
        values = [v for e in seen if (v := e.get(name)) is not None and np.isfinite(v) and v >= 0]
        if values:
            return float(np.mean(values))
        return getattr(before, name) if before is not None else None

    loss = mean("loss")
    return None if loss is None else Estimates(loss, mean("smoothness"), mean("variance"), mean("gradient"))
