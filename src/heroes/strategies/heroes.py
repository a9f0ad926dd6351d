"""Heroes: enhanced neural composition with adaptive local updates.

Each client gets the widest slice that its device and its link afford, and as many local steps as let everyone
finish together. Which blocks a slice has, and how many steps a round aims at, can be chosen; as published the
least trained blocks are given out, and the steps follow from a convergence bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from heroes.fields import NotNegative, Positive, Share, Whole
from heroes.messages import Cohort, Facts, Floats, Integers, Plan, ServerState, Tensors
from heroes.planning.belief import believed
from heroes.planning.loads import Load, assignments, by_own_clocks, fitted
from heroes.planning.pacing import (
    Deadline,
    Estimates,
    Goal,
    Intervals,
    Limits,
    Pace,
    bound,
    calmest,
    fastest_deadline,
    mean_deadline,
    step_intervals,
    steps_aimed_at,
    thrifty_steps,
    worthwhile_steps,
)
from heroes.slices.blocks import add_steps, choose_blocks
from heroes.slices.cuts import Part, cut_out, scaled
from heroes.strategies.base import Answers, Duties, StepLimit, Strategy

_DRIFT = 0.45  # steps count half once there are this / eta^2 of them: clients are far apart,
_FITTED = 0.6  # or this / eta passes over a client's examples: it fits its own
_LEAST_RATE = 1e-9  # a rate may decay to nothing, which no formula divides by
_MOST_PASSES = 8.0  # with tiny models steps cost nothing, and more would only fit each client's own examples
_UNREACHABLE = (
    "strategy.threshold cannot be reached with the current estimates; the time budget or the rounds left "
    "decide"
)


@dataclass(frozen=True)
class HeroesMemory:
    """What Heroes remembers: steps per block, estimates, the pace's scale, the last reducing error."""

    counters: tuple[int, ...]
    estimates: Estimates | None = None
    pace_scale: float | None = None
    reducing_error: float = 0.0

    def fits(self, begin: HeroesMemory) -> bool:
        """Whether a run that began so can have come to this: a checkpoint from outside may say anything."""
        return len(self.counters) == len(begin.counters) and min(self.counters) >= 0


State = ServerState[HeroesMemory]


class Heroes(Strategy):
    """Heroes and its ablations: blocks shared by all widths, and local steps that let all finish together."""

    name: Literal["heroes"] = "heroes"
    """the strategy"""
    blocks: Literal["grid", "free", "nested"] = "nested"
    """the blocks a client gets: the least trained groups, the least trained blocks anywhere, or the leading
    """
    adaptive_tau: bool = True
    """whether clients get as many steps as let all finish together; if not, all do tau_first"""
    pace: Literal["thrifty", "progress", "calibrated", "bound", "constant"] = "thrifty"
    """the step count aimed at: the most that cost little progress a second, what brings the most of it, the
    bound's formula scaled to start at tau_first, the same as it stands, or tau_first
    """
    thrift: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """with pace = thrifty: the share of the progress a second that is given up for longer rounds, which send
    less for the same model
    """
    drift: Positive = 30.0
    """with pace = progress: a client's steps count half once their number times the learning rate (of SGD; 30
    times that of AdamW) is this
    """
    deadline: Literal["mean", "fastest"] = "mean"
    """the length of a round: the average client does tau* steps, or the fastest client sets it"""
    passes: Positive = 5.0
    """with pace = progress: the most passes over its examples that the median client makes in a round"""
    tau_first: Whole = 10
    """local steps of everyone in the first round"""
    tau_min: Whole = 2
    """fewest local steps"""
    tau_max: Whole = 500
    """most local steps"""
    rho: NotNegative | Literal["auto"] = 0.0
    """seconds a client may wait so that blocks are trained more evenly; auto is a tenth of the round"""
    step_limit: StepLimit = "own"
    """mu_max: seconds a local step may take; or what a step of the complete model takes on the fastest device
    class: shared is that of the dense model, the same for all strategies, own that of the model it trains
    """
    any_width: Share = 0.3
    """share of a client's steps that train the leading part of its slice, of a width drawn from 1 to its own
    """
    useful: Share = 0.25
    """share of the steps aimed at that a client must have time for: one whose link leaves it less gets a
    narrower slice; 0 looks at its compute alone
    """
    patience: Share = 0.05
    """share of a round that clients may wait, in the mean, before something is done about it; 1 lets them"""
    fill: bool = True
    """what is done: batches become larger or smaller, so that all end together; if not, the round becomes up
    to 25 % shorter or longer, whichever lets clients wait least
    """
    own_clock: bool = True
    """whether clients that nobody can foresee (fleet.foresight) train for a time by their own clocks"""
    by_steps: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """how steps weigh in the mean: a change is taken times (its steps / the usual number)^by_steps; 0 is
    the same for all, 1 weighs by steps, -1 makes up for them, as FedNova does
    """
    threshold: Positive | None = None
    """epsilon: the convergence bound to reach; decides how many rounds are still needed"""

    holds = "factors"
    colour = "#0072B2"
    marker = "o"
    literal: ClassVar = {
        "strategy.blocks": "free",
        "strategy.pace": "bound",
        "strategy.deadline": "fastest",
        "strategy.tau_min": 1,
        "strategy.tau_first": 50,
        "strategy.tau_max": 50,
        "strategy.rho": "auto",
        "strategy.step_limit": "shared",
        "strategy.any_width": 0.0,
        "strategy.useful": 0.0,
        "strategy.patience": 1.0,
        "strategy.own_clock": False,
        "model.rank_ratio": 1.0,
        "exchange.up_bits": 32,
        "exchange.down_bits": 32,
        "optimiser.name": "none",
        "evaluation.average": 0.0,
    }
    companions: ClassVar = {
        "model.rank_ratio": 0.25,
        "exchange.up_bits": 4,
        "exchange.down_bits": 6,
        "optimiser.name": "momentum",
        "optimiser.rate": 0.6,
        "optimiser.momentum": 0.7,
        "evaluation.average": 0.8,
        "evaluation.lookback": 0.1,
    }
    tries: ClassVar = {"model.rank_ratio": (0.25, 0.5, 1.0)}
    absent: ClassVar = {"any_width": 0.0, "useful": 0.0, "patience": 1.0, "fill": False, "own_clock": False}
    unforeseen: ClassVar = frozenset({"own_clock"})

    @model_validator(mode="after")
    def _tau_in_order(self) -> Self:
        if not self.tau_min <= self.tau_first <= self.tau_max:
            raise ValueError(
                f"tau_min, tau_first, tau_max are {self.tau_min}, {self.tau_first}, {self.tau_max}; "
                "they must not decrease in this order"
            )
        return self

    def duties(self, probes: int) -> Duties:
        return Duties(probes=probes if self._estimates else 0, any_width=self.any_width)

    def reveals(self) -> str | None:
        if self.by_steps:
            return "changes that strategy.by_steps makes longer after they were clipped; set it to 0"
        return (
            "the estimates behind strategy.pace; use strategy.pace = 'thrifty'" if self._estimates else None
        )

    @property
    def _estimates(self) -> bool:
        """Whether clients must estimate properties of their loss."""
        return self.adaptive_tau and self.pace in ("calibrated", "bound")

    @property
    def _by_progress(self) -> bool:
        """Whether the pace weighs what steps bring against what they take."""
        return self.pace in ("thrifty", "progress")

    @property
    def _fits(self) -> bool:
        """Whether batches may change so that all end together."""
        return self.fill and self.patience < 1

    @property
    def limits(self) -> Limits:
        """What tau may be."""
        return Limits(self.tau_first, self.tau_min, self.tau_max)

    @property
    def idle(self) -> frozenset[str]:
        used = {"thrifty": {"thrift"}, "progress": {"drift", "passes"}}
        read = used.get(self.pace, set()) if self.adaptive_tau else set()
        read |= {"fill"} if self.adaptive_tau and self.patience < 1 else set()  # as in _fits
        return frozenset({"thrift", "drift", "passes", "fill"} - read)

    @property
    def steps_key(self) -> str | None:
        return None if self.adaptive_tau and self._by_progress else "tau_first"

    def begin(self, seed: int) -> State:
        """Fresh factors, no block trained."""
        memory = HeroesMemory((0,) * self.family.max_width**2)
        return ServerState(0, self.family.initial(seed), memory)

    def choose_widths(self, cohort: Cohort) -> Integers:
        return self.afforded(cohort, self.step_limit)

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """Width by what the device affords, then T, then blocks and tau client by client."""
        ground = self.ground
        probing = state.round % ground.probe_every == 0
        probes = self.duties(ground.probes).probes if probing else 0
        rate = ground.learning_rate.at(state.round)
        load = self.load(cohort, gradients=2 * probes)  # before and after
        pace, seconds, steps = self._steps(state, load, rate)
        while (too_wide := (load.widths > 1) & (steps.high < self.useful * pace.tau)).any():
            load = self.load(cohort, 2 * probes, load.widths - too_wide)
            pace, seconds, steps = self._steps(state, load, rate)
        wishes = zip(load.widths.tolist(), steps.low.tolist(), steps.high.tolist(), strict=True)
        chosen = choose_blocks(self.blocks, np.array(state.memory.counters, dtype=np.int64), wishes)
        selections, taus = zip(*chosen, strict=True)
        late = steps.straggler.tolist()
        given = assignments(state.round + 1, cohort, load, rate, selections, taus, late, probing)
        if seconds is not None:
            given = fitted(given, seconds, self.patience, self.tau_max) if self._fits else given
            given = by_own_clocks(given) if self.own_clock else given
        facts = {
            "tau_star": pace.tau,
            "rounds_left": pace.rounds,
            "rule": pace.rule,
            "deadline": seconds,
            "pace_scale": pace.scale,
            "notices": (_UNREACHABLE,) if pace.threshold_unreachable else (),
        }
        return Plan(given, facts)

    def _steps(self, state: State, load: Load, rate: float) -> tuple[Pace, float | None, Intervals]:
        """The pace, when the round should end, and the steps every client may do by then."""
        if not self.adaptive_tau or (state.round == 0 and not self._by_progress):
            fixed = np.full(len(load.mu), self.tau_first)
            left = max(1, self.ground.rounds - state.round)
            pace = Pace(float(self.tau_first), left, "fixed", state.memory.pace_scale)
            return pace, None, Intervals(fixed, fixed, np.zeros(len(load.mu), dtype=bool))
        pace, deadline = self._set_deadline(state, load, rate)
        rho = deadline.seconds / 10 if self.rho == "auto" else self.rho
        return pace, deadline.seconds, step_intervals(load.mu, load.nu, deadline, rho, self.limits)

    def aggregate(self, state: State, plan: Plan, answers: Answers) -> tuple[State, Facts]:
        """Average over holders; update counters and estimates from the clients that answered."""
        energy = self._block_energy(state.tensors)
        alphas = tuple(float(energy.sum() - energy[list(a.selection.pieces)].sum()) for a in plan.assignments)
        seen = _Seen(np.array(state.memory.counters, dtype=np.int64))
        tensors = self.ground.overlay(state.tensors, self._parts(state, plan, answers, seen))
        estimates = mean_estimates(seen.losses, state.memory.estimates)
        answered = [
            alpha for alpha, a in zip(alphas, plan.assignments, strict=True) if a.client in seen.clients
        ]
        memory = HeroesMemory(
            tuple(seen.counters.tolist()), estimates, plan.facts["pace_scale"], max(answered, default=0.0)
        )
        after = replace(state, round=state.round + 1, tensors=tensors, memory=memory)
        return after, self._facts(memory, plan, alphas)

    def _parts(self, state: State, plan: Plan, answers: Answers, seen: _Seen) -> Iterator[Part]:
        usual = float(np.mean([a.tau for a in plan.assignments]))
        for assignment, update in answers:
            seen.counters = add_steps(seen.counters, assignment.selection.pieces, assignment.tau)
            seen.losses.append({**update.measured, "loss": update.loss})
            seen.clients.add(assignment.client)
            cut = self.cut(assignment.selection)
            weight = (assignment.tau / usual) ** self.by_steps
            sent = cut_out(state.tensors, cut) if weight != 1 else {}
            yield cut, scaled(sent, update.tensors, weight)

    def _set_deadline(self, state: State, load: Load, eta: float) -> tuple[Pace, Deadline]:
        """The pace aimed at and when the round should end."""
        limits = self.limits
        if self.deadline == "mean":
            middle = np.median if self._by_progress else np.mean  # one slow link sets nobody's pace
            chosen = self._pace(state, eta, float(middle(load.mu)), float(middle(load.nu)))
            least = 0 if self._fits else limits.tau_min  # smaller batches let the slowest be done by then
            seconds = mean_deadline(load.mu, load.nu, chosen.tau, least, limits.tau_max)
            if not self._fits:
                seconds = calmest(load.mu, load.nu, seconds, limits, self.patience)
            return chosen, Deadline(seconds)
        paces = [self._pace(state, eta, float(load.mu[0]), float(load.nu[0]))] * len(load.mu)
        if paces[0].rule in ("time", "thrifty", "progress"):  # else the pace does not depend on the client
            paces = [
                self._pace(state, eta, mu, nu)
                for mu, nu in zip(load.mu.tolist(), load.nu.tolist(), strict=True)
            ]
        deadline = fastest_deadline(load.mu, load.nu, paces)
        assert deadline.setter is not None
        return paces[deadline.setter], deadline

    def _pace(self, state: State, eta: float, mu: float, nu: float) -> Pace:
        if not self._estimates:
            wished = float(self.tau_first)
            if self.pace == "progress":
                wished = self._worthwhile(mu, nu, eta)
            elif self.pace == "thrifty":
                wished = self._thrifty(mu, nu, eta)
            left = max(1, self.ground.rounds - state.round)
            return Pace(self.limits.clamp(wished), left, self.pace, None)
        budget = self.ground.time_budget
        seconds_left = None if budget is None else max(0.0, budget - state.seconds)
        return steps_aimed_at(
            state.memory.estimates,
            Goal(self.ground.rounds - state.round, self.threshold, seconds_left),
            self.limits,
            learning_rate=eta,
            mu=mu,
            nu=nu,
            reducing_error=state.memory.reducing_error,
            calibrated=self.pace == "calibrated",
            scale=state.memory.pace_scale,
        )

    def _worthwhile(self, mu: float, nu: float, eta: float) -> float:
        """The steps that bring the most progress a second, within so many passes over a client's examples."""
        steps = worthwhile_steps(mu, nu, self._reach(eta), self.drift)
        one_pass = self.ground.one_pass
        return steps if one_pass is None else min(steps, self.passes * one_pass)

    def _thrifty(self, mu: float, nu: float, eta: float) -> float:
        """The most steps that cost little progress a second, within eight passes over a client's examples.

        Steps count half once clients are far apart, or have gone over their own examples often: greater steps
        come to the first much sooner, and to the second sooner.
        """
        reach = self._reach(eta)
        one_pass = math.inf if self.ground.one_pass is None else self.ground.one_pass
        half = min(_DRIFT / reach, _FITTED * one_pass) / reach
        return min(thrifty_steps(mu, nu, half, self.thrift), _MOST_PASSES * one_pass)

    def _reach(self, eta: float) -> float:
        """How far a step goes, as a rate of SGD."""
        return max(eta, _LEAST_RATE) * self.ground.stride

    def _block_energy(self, tensors: Tensors) -> Floats:
        """Squared norm of every coefficient block, over all layers."""
        energy = np.zeros(self.family.max_width**2)
        for p in self.family.parameters:
            if p.layout is not None:
                energy += tensors[p.coefficient].double().square().sum(dim=(1, 2)).numpy()
        return energy

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
    """What is noted while answers stream by."""

    counters: Integers
    losses: list[dict[str, float]] = field(default_factory=list)
    clients: set[int] = field(default_factory=set)


def mean_estimates(seen: Sequence[Mapping[str, float]], before: Estimates | None) -> Estimates | None:
    """Plain means over the believed clients; an estimate that none could give keeps its value."""

    def mean(name: str) -> float | None:
        values = [v for e in seen if (v := e.get(name)) is not None and np.isfinite(v) and v >= 0]
        if values:
            return float(np.mean(np.array(values)[believed(values)]))
        return getattr(before, name) if before is not None else None

    loss = mean("loss")
    return None if loss is None else Estimates(loss, mean("smoothness"), mean("variance"), mean("gradient"))
