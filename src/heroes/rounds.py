"""The spine: sample, assign, cut, train, pair, aggregate, record; again until it is time to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from heroes import seeds
from heroes.contracts import Clock, Engine, Strategy, Timing
from heroes.errors import TrainingError
from heroes.exchange import Feedback, pack_tensors, unpack_tensors
from heroes.fleet.devices import Fleet
from heroes.messages import (
    Assignment,
    ClientRecord,
    Facts,
    Integers,
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
from heroes.pairing import Pairing
from heroes.submodels import cut_out, cut_shapes

M = TypeVar("M")
Sent = Callable[[Selection], Tensors]
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
class Federation:
    """All that takes part in a run: the three ports, the fleet and the model family."""

    strategy: Strategy[Any]
    engine: Engine
    clock: Clock
    fleet: Fleet
    cohort: int
    seed: int
    family: Family
    down_bits: int = 32
    feedback: Feedback | None = None  # where clients' rounding residuals are kept in a simulation

    def score(self, state: ServerState[Any], width: int) -> Callable[[], Score]:
        """Begin to test the model of this width; call what is returned for how good it is."""
        return self.engine.score(cut_out(state.tensors, self.strategy.cut(self.strategy.serve(width))), width)


def sample(fleet: Fleet, cohort: int, seed: int, round_number: int) -> Integers:
    """Who takes part: `cohort` clients, uniformly without replacement."""
    rng = seeds.stream(seed, "sampling", round_number)
    return np.sort(rng.choice(len(fleet), cohort, replace=False)).astype(np.int64)


def run_round(f: Federation, state: ServerState[M]) -> tuple[ServerState[M], RoundRecord]:
    """One round, from who takes part to what is written down."""
    number = state.round + 1
    clients = f.fleet.status(sample(f.fleet, f.cohort, f.seed, number), number)  # who, and how fast today
    plan = f.strategy.assign(state, clients)  # width, blocks, tau for each
    sent = lru_cache(maxsize=_SLICES)(lambda selection: as_sent(f, state, selection))  # clients may get the same slice
    updates = f.engine.run(plan.assignments, lambda a: make_task(f, a, sent))  # local training happens behind this line
    answers = Pairing(plan.assignments, updates, lambda a: cut_shapes(state.tensors, f.strategy.cut(a.selection)))
    after, facts = f.strategy.aggregate(state, plan, received(f, state, answers, sent))
    if f.feedback is not None:
        after = replace(after, residuals=dict(f.feedback.kept))
    return record(after, plan, answers, facts, f.clock.elapse(plan.assignments))


def as_sent(f: Federation, state: ServerState[M], selection: Selection) -> Tensors:
    """A slice cut out of the global model, as it looks after travelling down."""
    tensors = cut_out(state.tensors, f.strategy.cut(selection))
    return unpack_tensors(pack_tensors(tensors, f.down_bits)) if f.down_bits < 32 else tensors


def make_task(f: Federation, assignment: Assignment, sent: Sent) -> Task:
    """What a client is told."""
    residuals = None
    if f.feedback is not None:
        residuals = f.feedback.residuals(assignment.client, f.strategy.cut(assignment.selection))
    seed = seeds.client(f.seed, assignment.round, assignment.client)
    return Task(assignment, sent(assignment.selection), seed, residuals)


def received(f: Federation, state: ServerState[M], answers: Pairing, sent: Sent) -> Iterator[tuple[Assignment, Update]]:
    """Hand the answers on, undoing what rounding did on the way.

    A client that got a rounded slice moved it somewhere: the exact slice is moved the same way, or small steps would be lost.
    What the client's own rounding left out is kept for its next turn.
    """
    for assignment, update in answers:
        cut = f.strategy.cut(assignment.selection)
        if f.feedback is not None and update.residuals is not None:
            f.feedback.keep(assignment.client, cut, update.residuals)
        if f.down_bits < 32:
            exact, rounded = cut_out(state.tensors, cut), sent(assignment.selection)
            update = replace(update, tensors={name: t + (exact[name] - rounded[name]) for name, t in update.tensors.items()})
        yield assignment, update


def record(
    state: ServerState[M], plan: Plan, answers: Pairing, facts: Facts, timing: Timing
) -> tuple[ServerState[M], RoundRecord]:
    """Add the round's time and traffic to the state, and write the round down."""
    up = sum(a.bytes_up for a in plan.assignments)
    down = sum(a.bytes_down for a in plan.assignments)
    state = replace(
        state,
        seconds=state.seconds + timing.duration,
        bytes_up=state.bytes_up + up,
        bytes_down=state.bytes_down + down,
    )
    losses = [loss for _, loss in answers.answered.values()]
    return state, RoundRecord(
        round=state.round,
        seconds=state.seconds,
        duration=timing.duration,
        waiting=float(timing.waiting.mean()),
        bytes_up=up,
        bytes_down=down,
        traffic=state.bytes_up + state.bytes_down,
        learning_rate=plan.assignments[0].learning_rate,
        loss=float(np.mean(losses)) if losses else None,
        tau_star=plan.tau_star,
        rounds_left=plan.rounds_left,
        rule=plan.rule,
        deadline=plan.deadline,
        threshold_unreachable=plan.threshold_unreachable,
        facts=replace(facts, reducing_errors=None),  # each client's stands with the client
        missing=tuple(answers.lost),
        clients=tuple(_client(n, a, answers, facts, timing) for n, a in enumerate(plan.assignments)),
    )


def _client(n: int, a: Assignment, answers: Pairing, facts: Facts, timing: Timing) -> ClientRecord:
    samples, loss = answers.answered.get(a.client, (None, None))
    return ClientRecord(
        client=a.client,
        device=a.device,
        width=a.selection.width,
        groups=a.selection.groups,
        blocks=a.selection.blocks,
        tau=a.tau,
        compute_seconds=a.compute_seconds,
        transfer_seconds=a.transfer_seconds,
        waiting=float(timing.waiting[n]),
        bytes_up=a.bytes_up,
        bytes_down=a.bytes_down,
        straggler=a.straggler,
        loss=loss,
        samples=samples,
        reducing_error=facts.reducing_errors[n] if facts.reducing_errors else None,
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
            if reason is None and stop.accuracy is None and not _in_vain(entry):
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
        if _in_vain(entry):
            first = entry.missing[0]
            raise TrainingError(f"no update of the first round could be used; client {first.client}: {first.reason}")


def _in_vain(entry: RoundRecord) -> bool:
    """Whether nothing came of the first round, as nothing will of the others."""
    return entry.round == 1 and len(entry.missing) >= len(entry.clients)


def _scored(state: ServerState[Any], entry: RoundRecord, score: Callable[[], Score]) -> Step:
    found = score()
    return state, replace(entry, accuracy=found.accuracy, test_loss=found.loss)
