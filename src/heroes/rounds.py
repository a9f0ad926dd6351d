"""The spine: sample, assign, cut, train, pair, aggregate, record; again until it is time to stop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from heroes import seeds
from heroes.contracts import Clock, Engine, Strategy, Timing
from heroes.defence import Defence
from heroes.errors import TrainingError
from heroes.exchange import Feedback, pack_tensors, unpack_tensors
from heroes.fleet.devices import Fleet
from heroes.fleet.faults import Faults, Mask
from heroes.fleet.wall import MeasuredFleet
from heroes.messages import (
    Abandoned,
    Assignment,
    ClientRecord,
    Facts,
    Integers,
    Lost,
    Plan,
    RoundRecord,
    Score,
    Selection,
    ServerState,
    Task,
    Tensors,
    Update,
)
from heroes.models.family import Family
from heroes.pairing import Expected, Pairing
from heroes.privacy import Privacy
from heroes.submodels import Cut, cut_out, cut_shapes

M = TypeVar("M")
Sent = Callable[[Selection], Tensors]
_DAY = 96  # times a day at which the server looks who is awake
_SLICES = 8  # kept during a round; the same slice is cut anew when more others came between


@dataclass(frozen=True)
class Stop:
    """When to stop: whichever comes first."""

    rounds: int
    seconds: float | None = None
    traffic: int | None = None
    accuracy: float | None = None
    loss: float | None = None

    def reason(self, record: RoundRecord) -> str | None:
        """Why the run ends with this round, or None."""
        if self.accuracy is not None and record.accuracy is not None and record.accuracy >= self.accuracy:
            return "target accuracy"
        if self.loss is not None and record.loss is not None and record.loss <= self.loss:
            return "target loss"
        if self.seconds is not None and record.seconds >= self.seconds:
            return "time budget"
        if self.traffic is not None and record.traffic >= self.traffic:
            return "traffic budget"
        return "rounds" if record.round >= self.rounds else None


@dataclass(frozen=True)
class Policy:
    """What the server does when clients are missing: see `heroes.sections.ServerConfig`."""

    at_least: int = 1
    attempts: int = 5
    oversample: float = 1.0


@dataclass(frozen=True)
class Federation:
    """All that takes part in a run: the three ports, the fleet and the model family."""

    strategy: Strategy[Any]
    engine: Engine
    clock: Clock
    fleet: Fleet | MeasuredFleet
    cohort: int
    seed: int
    family: Family
    down_bits: int = 32
    feedback: Feedback | None = None  # where clients' rounding residuals are kept in a simulation
    faults: Faults | None = None
    policy: Policy = field(default_factory=Policy)
    defence: Defence = field(default_factory=Defence)
    privacy: Privacy | None = None
    present: Callable[[], Mask | None] = lambda: None  # which clients can be asked at all; None is everybody

    def score(self, state: ServerState[Any], width: int) -> Callable[[], Score]:
        """Begin to test the model of this width; call what is returned for how good it is."""
        return self.engine.score(cut_out(state.tensors, self.strategy.cut(self.strategy.serve(width))), width)

    def cut(self, assignment: Assignment) -> Cut:
        """Where the tensors of a client lie in the global ones."""
        return self.strategy.cut(assignment.selection)


@dataclass(frozen=True)
class Attempt(Generic[M]):
    """A round as it was tried: `after` is the state that it would lead to."""

    plan: Plan
    answers: Pairing
    after: ServerState[M]
    facts: Facts
    timing: Timing

    @cached_property
    def arrived(self) -> set[int]:
        """The clients that sent something, whether it counted or not."""
        return {*self.answers.answered, *(lost.client for lost in self.answers.lost if lost.arrived)}

    @property
    def bytes_up(self) -> int:
        return sum(a.bytes_up for a in self.plan.assignments if a.client in self.arrived)

    @property
    def bytes_down(self) -> int:
        return sum(a.bytes_down for a in self.plan.assignments)

    def abandoned(self) -> Abandoned:
        clients = tuple(a.client for a in self.plan.assignments)
        return Abandoned(self.timing.duration, self.bytes_up, self.bytes_down, clients, tuple(self.answers.lost))

    def charged(self, state: ServerState[M]) -> ServerState[M]:
        """The state with the attempt's time and traffic spent."""
        return replace(
            state,
            seconds=state.seconds + self.timing.duration,
            bytes_up=state.bytes_up + self.bytes_up,
            bytes_down=state.bytes_down + self.bytes_down,
        )


def sample(
    fleet: Fleet | MeasuredFleet, wanted: int, seed: int, round_number: int, attempt: int = 0, awake: Mask | None = None
) -> Integers:
    """Who takes part: so many clients, uniformly without replacement, from those awake if not all are."""
    rng = seeds.stream(seed, "sampling", round_number, *([attempt] if attempt else []))
    there = len(fleet) if awake is None else np.flatnonzero(awake)
    most = wanted if awake is None else min(wanted, int(awake.sum()))
    return np.sort(rng.choice(there, most, replace=False)).astype(np.int64)


def run_round(f: Federation, state: ServerState[M]) -> tuple[ServerState[M], RoundRecord]:
    """One round: tried with fresh clients until enough of them have answered."""
    idle = 0.0
    abandoned: list[Abandoned] = []
    for number in range(f.policy.attempts):
        wait = until_awake(f, state.seconds)
        idle += wait
        state = replace(state, seconds=state.seconds + wait)
        tried = try_round(f, state, number)
        if len(tried.answers.answered) >= f.policy.at_least:
            return record(f, tried, abandoned, idle)
        abandoned.append(tried.abandoned())
        state = tried.charged(state)
        if f.feedback is not None:
            f.feedback.restore(state.residuals)
    raise TrainingError(_given_up(f, state.round + 1, abandoned))


def try_round(f: Federation, state: ServerState[M], number: int) -> Attempt[M]:
    """One attempt at a round, from who takes part to the model that comes of it."""
    awake = f.present() if f.faults is None else f.faults.available(state.seconds)
    asked = sample(f.fleet, math.ceil(f.cohort * f.policy.oversample), f.seed, state.round + 1, number, awake)
    clients = f.fleet.status(asked, state.round + 1, number)  # who, and how fast today
    plan = stamped(f, f.strategy.assign(state, clients), number)  # width, blocks, tau for each
    wanted = min(f.cohort, len(clients))
    sent = lru_cache(maxsize=_SLICES)(lambda selection: as_sent(f, state, selection))  # clients may get the same slice
    updates = carried_out(f, plan.assignments, wanted, lambda a: make_task(f, a, sent))
    answers = Pairing(plan.assignments, updates, lambda a: expected(f, state, a))
    good = screen(f, state, answers, received(f, state, answers, sent))
    after, facts = f.strategy.aggregate(state, plan, good)  # local training happens behind this line
    if f.privacy is not None:
        held = [f.cut(a) for a in plan.assignments if a.client in answers.answered]
        after = replace(after, tensors=f.privacy.noised(after.tensors, held, after.round))
    if f.feedback is not None:
        after = replace(after, residuals=dict(f.feedback.kept))
    return Attempt(plan, answers, after, facts, f.clock.elapse(plan.assignments, wanted))


def until_awake(f: Federation, seconds: float) -> float:
    """How long the server waits until enough clients can be asked: no time at all, or some part of a day."""
    needed = max(1, f.policy.at_least)
    if f.faults is None or f.faults.available(seconds) is None:
        return 0.0
    for part in range(_DAY + 1):
        wait = part * f.faults.day / _DAY
        awake = f.faults.available(seconds + wait)
        if awake is not None and int(awake.sum()) >= needed:
            return wait
    raise TrainingError(f"at no time of the day are {needed} clients awake; raise faults.awake or lower server.at_least")


def stamped(f: Federation, plan: Plan, attempt: int) -> Plan:
    """The plan with a number in every assignment that nobody else can know."""

    def nonce(client: int) -> int:
        return seeds.number(f.seed, "nonce", plan.assignments[0].round, attempt, client)

    return replace(plan, assignments=tuple(replace(a, attempt=attempt, nonce=nonce(a.client)) for a in plan.assignments))


def carried_out(
    f: Federation, plan: Sequence[Assignment], wanted: int, task: Callable[[Assignment], Task]
) -> Iterator[Update | Lost]:
    """Whatever comes back from the clients. Nobody trains whose update is known not to count."""
    absent = f.clock.absent(plan, wanted)
    gone = {lost.client for lost in absent}
    present = [a for a in plan if a.client not in gone]
    yield from absent
    if len(present) < f.policy.at_least:
        yield from (Lost(a.client, "too few others were in", "abandoned", arrived=True) for a in present)
    elif present:
        yield from f.engine.run(present, task)


def as_sent(f: Federation, state: ServerState[M], selection: Selection) -> Tensors:
    """A slice cut out of the global model, as it looks after travelling down."""
    tensors = cut_out(state.tensors, f.strategy.cut(selection))
    return unpack_tensors(pack_tensors(tensors, f.down_bits)) if f.down_bits < 32 else tensors


def make_task(f: Federation, assignment: Assignment, sent: Sent) -> Task:
    """What a client is told."""
    residuals = None
    if f.feedback is not None:
        residuals = f.feedback.residuals(assignment.client, f.cut(assignment))
    seed = seeds.client(f.seed, assignment.round, assignment.client)
    return Task(assignment, sent(assignment.selection), seed, residuals)


def expected(f: Federation, state: ServerState[M], assignment: Assignment) -> Expected:
    """What the answer to an assignment must look like."""
    shapes = cut_shapes(state.tensors, f.cut(assignment))
    rows = [shapes[name][0] for name in f.family.classifier if name in shapes]
    return Expected(shapes, sum(math.prod(shape) for shape in shapes.values()), max(rows, default=0))


def received(f: Federation, state: ServerState[M], answers: Pairing, sent: Sent) -> Iterator[tuple[Assignment, Update]]:
    """Hand the answers on, undoing what rounding did on the way.

    A client that got a rounded slice moved it somewhere: the exact slice is moved the same way, or small steps would be lost.
    What the client's own rounding left out is kept for its next turn.
    """
    for assignment, update in answers:
        cut = f.cut(assignment)
        if f.feedback is not None and update.residuals is not None:
            f.feedback.keep(assignment.client, cut, update.residuals)
        if f.down_bits < 32:
            exact, rounded = cut_out(state.tensors, cut), sent(assignment.selection)
            update = replace(update, tensors={name: t + (exact[name] - rounded[name]) for name, t in update.tensors.items()})
        yield assignment, update


def screen(
    f: Federation, state: ServerState[M], answers: Pairing, updates: Iterator[tuple[Assignment, Update]]
) -> Iterator[tuple[Assignment, Update]]:
    """The updates that the server's defence lets into the model."""
    defence = f.defence if f.privacy is None else Defence(clip=f.privacy.clip)
    return defence.screen(updates, state.tensors, f.cut, answers.refuse)


def record(f: Federation, tried: Attempt[M], abandoned: Sequence[Abandoned], idle: float) -> tuple[ServerState[M], RoundRecord]:
    """Add the round's time and traffic to the state, and write the round down."""
    plan, answers, timing = tried.plan, tried.answers, tried.timing
    state = tried.charged(tried.after)
    losses = [loss for _, loss in answers.answered.values() if loss is not None]
    waited = [float(w) for a, w in zip(plan.assignments, timing.waiting, strict=True) if a.client in tried.arrived]
    lost = [*answers.lost, *(one for before in abandoned for one in before.missing)]
    return state, RoundRecord(
        round=state.round,
        seconds=state.seconds,
        duration=timing.duration,
        waiting=float(np.mean(waited)) if waited else 0.0,
        bytes_up=tried.bytes_up,
        bytes_down=tried.bytes_down,
        traffic=state.bytes_up + state.bytes_down,
        learning_rate=plan.assignments[0].learning_rate,
        loss=float(np.mean(losses)) if losses else None,
        tau_star=plan.tau_star,
        rounds_left=plan.rounds_left,
        rule=plan.rule,
        deadline=plan.deadline,
        threshold_unreachable=plan.threshold_unreachable,
        facts=replace(tried.facts, reducing_errors=None),  # each client's stands with the client
        missing=tuple(answers.lost),
        clients=tuple(_client(n, a, tried) for n, a in enumerate(plan.assignments)),
        lost=dict(sorted(Counter(one.cause for one in lost).items())),
        abandoned=tuple(abandoned),
        idle=idle,
        clock=f.clock.name,
        epsilon=None if f.privacy is None else f.privacy.epsilon(state.round),
    )


def _client(n: int, a: Assignment, tried: Attempt[Any]) -> ClientRecord:
    samples, loss = tried.answers.answered.get(a.client, (None, None))
    came = a.client in tried.arrived
    return ClientRecord(
        client=a.client,
        device=a.device,
        width=a.selection.width,
        groups=a.selection.groups,
        blocks=a.selection.blocks,
        tau=a.tau,
        compute_seconds=a.compute_seconds,
        transfer_seconds=a.transfer_seconds,
        waiting=float(tried.timing.waiting[n]) if came else 0.0,
        bytes_up=a.bytes_up if came else 0,
        bytes_down=a.bytes_down,
        straggler=a.straggler,
        loss=loss,
        samples=samples,
        reducing_error=tried.facts.reducing_errors[n] if tried.facts.reducing_errors else None,
    )


def _given_up(f: Federation, number: int, abandoned: Sequence[Abandoned]) -> str:
    last = abandoned[-1]
    first, missing = last.missing[0], len({lost.client for lost in last.missing})
    diverged = any(lost.cause == "finite" for lost in last.missing)
    hint = "; a smaller training.learning_rate or a training.clip may help" if diverged else ""
    return (
        f"round {number} was begun {len(abandoned)} times and never had the {f.policy.at_least} updates it needs: the last time "
        f"{missing} of {len(last.clients)} clients were missing, for example client {first.client}: {first.reason}{hint}"
    )


def begin(f: Federation) -> ServerState[Any]:
    """The state before the first round."""
    return f.strategy.begin(seeds.number(f.seed, "model"))


Step = tuple[ServerState[Any], RoundRecord]


def run(
    f: Federation, stop: Stop, *, evaluate_every: int = 1, every_width: bool = True, after: ServerState[Any] | None = None
) -> Iterator[Step]:
    """Rounds until it is time to stop, from the beginning or `after` some. The last record says why and holds the accuracy of
    every width.

    A model is tested while the next round trains, unless its accuracy may end the run; its round is handed out after that.
    """
    state = begin(f) if after is None else after
    if f.feedback is not None:
        f.feedback.restore(state.residuals)
    complete = f.strategy.widths[-1]
    held: tuple[ServerState[Any], RoundRecord, Callable[[], Score]] | None = None
    while True:
        try:
            state, entry = run_round(f, state)
        finally:
            if held is not None:  # the round before is whole even if this one failed
                yield _scored(*held)
                held = None
        reason = stop.reason(entry)
        if reason is not None or entry.round % evaluate_every == 0:
            score = f.score(state, complete)
            if reason is None and stop.accuracy is None:
                held = state, entry, score
                continue
            state, entry = _scored(state, entry, score)
            reason = stop.reason(entry)
        if reason is not None:
            widths = f.strategy.widths if every_width else ()
            by_width = {width: f.score(state, width)().accuracy for width in widths}
            entry = replace(entry, stopped=reason, accuracy_by_width=by_width)
        yield state, entry
        if reason is not None:
            return


def _scored(state: ServerState[Any], entry: RoundRecord, score: Callable[[], Score]) -> Step:
    found = score()
    return state, replace(entry, accuracy=found.accuracy, test_loss=found.loss)
