"""The spine: sample, assign, cut, carry, pair, screen, aggregate, optimise, record; then the next round.

`run_round` is one round, `run` is rounds until it is time to stop. Each step is a function here that reads
the federation and the state, and changes neither.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from heroes import seeds
from heroes.client.training import one_thread
from heroes.errors import TrainingError
from heroes.federation import Federation, Stop
from heroes.messages import (
    LARGEST,
    Abandoned,
    Assignment,
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
from heroes.server.asking import aggregated, assigned, begun, cut, taken
from heroes.server.optimisers import averaged, optimised, weight_of_past
from heroes.server.pairing import Expected, Pairing
from heroes.server.recording import Attempt, given_up, record
from heroes.server.sampling import remembered, sampled
from heroes.slices.cuts import Cut, cut_out, cut_shapes
from heroes.slices.exchange import pack_tensors, unpack_tensors
from heroes.slices.feedback import Leftover
from heroes.slices.overlays import holders

M = TypeVar("M")
Sent = Callable[[Selection], Tensors]
_NONCE_BITS = 62  # what fits everywhere
_SLICES = 8  # kept during a round; the same slice is cut anew when more others came between


def run_round(f: Federation, state: ServerState[M]) -> tuple[ServerState[M], RoundRecord]:
    """One round: tried with fresh clients until enough of them have answered."""
    idle = 0.0
    abandoned: list[Abandoned] = []
    for number in range(f.policy.attempts):
        wait = f.availability.wait(max(1, f.policy.at_least), state.seconds)
        idle += wait
        state = replace(state, seconds=state.seconds + wait)
        tried = try_round(f, state, number)
        if len(tried.answers.answered) >= f.policy.at_least:
            return record(tried, abandoned, idle=idle, clock=f.clock.name, privacy=f.privacy)
        abandoned.append(tried.abandoned())
        state = tried.charged(state)
    raise TrainingError(given_up(f.policy.at_least, state.round + 1, abandoned))


def try_round(f: Federation, state: ServerState[M], number: int) -> Attempt[M]:
    """One attempt at a round, from choosing clients to the state it leads to."""
    asked = sample(f, state, number)
    clients = f.fleet.status(asked, state.round + 1, number, state.measured)  # how fast they are today
    plan = stamped(assigned(f.strategy, state, clients), number)  # width, blocks, tau for each
    plan = replace(plan, assignments=f.clock.lived(plan.assignments))
    wanted = min(f.cohort, len(clients))
    # clients often get the same slice: it is cut once, and told once how it must come back
    sent = lru_cache(maxsize=_SLICES)(lambda selection: as_sent(f, state, selection))
    like = lru_cache(maxsize=_SLICES)(lambda selection: expected(f, state, selection))
    updates = carried_out(f, plan.assignments, wanted, lambda a: make_task(f, state, a, sent))
    unchanged = None if f.privacy is None else lambda a: sent(a.selection)
    answers = Pairing(plan.assignments, updates, lambda a: like(a.selection), unchanged)
    left: list[Leftover] = []
    good = screen(f, state, answers, received(f, state, answers, sent, left.append))
    with one_thread():  # to wake others takes longer than these sums, and they would be in workers' way
        after, facts = aggregated(f.strategy, state, plan, good)  # local training happens behind this line
        trained = [held(f, a) for a in plan.assignments if a.client in answers.counted]
        after = optimise(f, state, after, trained)
    plan = replace(plan, assignments=answers.done)
    timing = f.clock.elapse(plan.assignments, wanted)
    memory = remembered(f.sampler, state, plan, answers.answered, timing, answers.measured)
    residuals = state.residuals if f.feedback is None else f.feedback.keep(state.residuals, left)
    prices = () if f.energy is None else f.energy.prices(clients, plan.assignments)
    return Attempt(plan, answers, replace(after, sampler=memory, residuals=residuals), facts, timing, prices)


def sample(f: Federation, state: ServerState[M], attempt: int = 0) -> Integers:
    """Who takes part, out of those who can be asked."""
    stream = partial(seeds.stream, f.seed) if f.privacy is None else f.privacy.stream
    rng = stream("sampling", state.round + 1, *([attempt] if attempt else []))
    there = f.availability.candidates(len(f.fleet), state.seconds)
    return sampled(f.sampler, state, there, math.ceil(f.cohort * f.policy.oversample), rng)


def stamped(plan: Plan, attempt: int) -> Plan:
    """The plan with a number in every assignment that nobody else can know, not even who knows the seed."""

    given = (replace(a, attempt=attempt, nonce=secrets.randbits(_NONCE_BITS)) for a in plan.assignments)
    return replace(plan, assignments=tuple(given))


def carried_out(
    f: Federation, plan: Sequence[Assignment], wanted: int, task: Callable[[Assignment], Task]
) -> Iterator[Update | Lost]:
    """Whatever comes back from the clients. Those whose update cannot count are not asked."""
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
    tensors = taken(f.strategy, state.tensors, selection)
    return unpack_tensors(pack_tensors(tensors, f.down_bits)) if f.down_bits < 32 else tensors


def make_task(f: Federation, state: ServerState[M], assignment: Assignment, sent: Sent) -> Task:
    """What is sent to a client."""
    residuals = None
    if f.feedback is not None:
        residuals = f.feedback.residuals(state.residuals, assignment.client, held(f, assignment))
    seed = seeds.client(f.seed, assignment.round, assignment.client)
    return Task(assignment, sent(assignment.selection), seed, residuals)


def held(f: Federation, assignment: Assignment) -> Cut:
    """Where the tensors of a client lie in the global ones."""
    return cut(f.strategy, assignment.selection)


def expected(f: Federation, state: ServerState[M], selection: Selection) -> Expected:
    """What the answer of a client that holds a selection must look like."""
    shapes = cut_shapes(state.tensors, cut(f.strategy, selection))
    rows = [shapes[name][0] for name in f.family.classifier if name in shapes]
    return Expected(shapes, f.sends, max(rows, default=0))


def received(
    f: Federation, state: ServerState[M], answers: Pairing, sent: Sent, keep: Callable[[Leftover], None]
) -> Iterator[tuple[Assignment, Update]]:
    """Hand the answers on, undoing what rounding did on the way.

    A client trains from a rounded slice. Its change is applied to the exact slice, or small steps would be
    lost. `keep` gets what the client's own rounding left out, for its next turn.
    """
    if f.feedback is None and f.down_bits == 32:
        yield from answers
        return
    for assignment, update in answers:
        where = held(f, assignment)
        if f.feedback is not None and update.residuals is not None:
            keep(Leftover(assignment.client, where, update.residuals))
        if f.down_bits < 32:
            exact, rounded = cut_out(state.tensors, where), sent(assignment.selection)
            update = replace(
                update,
                tensors={name: t + (exact[name] - rounded[name]) for name, t in update.tensors.items()},
            )
        yield assignment, update


def screen(
    f: Federation, state: ServerState[M], answers: Pairing, updates: Iterator[tuple[Assignment, Update]]
) -> Iterator[tuple[Assignment, Update]]:
    """The updates that the server's defence lets into the model."""
    if f.defence is None:
        return updates
    return f.defence.screen(updates, state.tensors, partial(held, f), answers.refuse)


def optimise(
    f: Federation, state: ServerState[M], after: ServerState[M], trained: Sequence[Cut]
) -> ServerState[M]:
    """The state after privacy's noise, the server optimiser's step and the moving average."""
    if f.privacy is not None:
        after = replace(after, tensors=f.privacy.noised(after.tensors, trained, after.round))
    counts = holders(state.tensors, trained) if f.optimiser is not None or f.average else {}
    if f.optimiser is not None:
        tensors, moments = optimised(
            f.optimiser, state.tensors, after.tensors, counts, state.moments, after.round
        )
        after = replace(after, tensors=tensors, moments=moments)
    if not f.average:
        return replace(after, averaged={})
    past = weight_of_past(f.average, after.round, f.lookback)
    return replace(after, averaged=averaged(f.served(state), after.tensors, counts, past))


def begin(f: Federation) -> ServerState[Any]:
    """The state before the first round."""
    return begun(f.strategy, seeds.number(f.seed, "model"))


Step = tuple[ServerState[Any], RoundRecord]


def run(
    f: Federation,
    stop: Stop,
    *,
    evaluate_every: int = 1,
    every_width: bool = True,
    after: ServerState[Any] | None = None,
    done: Sequence[RoundRecord] = (),
) -> Iterator[Step]:
    """Rounds until it is time to stop, from the beginning or `after` some that are `done`.

    The last record says why the run stopped and has the scores of every width. A model is tested while the
    next round trains, unless its score may end the run; its record is yielded after that.
    """
    state = begin(f) if after is None else after
    tested = deque((row for row in done if row.scores), stop.remembers)
    pending: tuple[ServerState[Any], RoundRecord, Callable[[], Score]] | None = None
    while True:
        try:
            state, entry = run_round(f, state)
        finally:
            if pending is not None:  # the round before is whole even if this one failed
                yield _scored(*pending)
                pending = None
        reason = stop.reason(entry)
        if reason is not None or entry.round % evaluate_every == 0:
            score = f.glance(state)
            if reason is None and not stop.needs_scores:
                pending = state, entry, score
                continue
            state, entry = _scored(state, entry, score)
            reason = stop.reason(entry, tested)
            tested.append(entry)
        if reason is not None:
            complete = f.strategy.widths[-1:] if f.sampled else ()
            widths = f.strategy.widths if every_width else complete
            by_width = {width: _written(f.score(state, width)()) for width in widths}
            entry = replace(entry, stopped=reason, scores_by_width=by_width)
        yield state, entry
        if reason is not None:
            return


def _scored(state: ServerState[Any], entry: RoundRecord, score: Callable[[], Score]) -> Step:
    result = score()
    return state, replace(
        entry,
        metric=result.metric,
        lower_is_better=result.lower_is_better,
        scores=_written(result),
        test_loss=result.loss,
    )


def _written(score: Score) -> dict[str, float]:
    """The metrics that can be recorded; those of a model that has diverged may not be finite."""
    return {name: value for name, value in score.metrics.items() if abs(value) < LARGEST}
