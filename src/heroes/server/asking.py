"""Asks a strategy what a round needs of it, and checks its answers: the user's own can fail in any way.

What goes wrong is a TrainingError that names the strategy, what it gave and what was expected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from heroes.contracts import Strategy
from heroes.errors import HeroesError, TrainingError, place, said
from heroes.messages import Assignment, Cohort, Facts, Plan, Selection, ServerState, Tensors, Update, plain
from heroes.slices.cuts import Cut, cut_out
from heroes.slices.exchange import UP_BITS

Answers = Iterator[tuple[Assignment, Update]]
Gather = Callable[[Tensors, int], Tensors]
"""what the batch norms of a model of these tensors and this width keep, by name"""


def begun(strategy: Strategy[Any], seed: int) -> ServerState[Any]:
    """The state before the first round."""
    with _named(strategy, "begin()"):
        state = strategy.begin(seed)
    if not isinstance(state, ServerState):
        raise _gave(strategy, "begin()", state, "", "a ServerState")
    return state


def assigned(strategy: Strategy[Any], state: ServerState[Any], cohort: Cohort) -> Plan:
    """The plan of a round: one assignment for every client of the cohort, in its order."""
    when = f"in round {state.round + 1}"
    with _named(strategy, f"assign() of round {state.round + 1}"):
        plan = strategy.assign(state, cohort)
    if not isinstance(plan, Plan):
        raise _gave(strategy, "assign()", plan, when, "a Plan")
    clients = [a.client for a in plan.assignments]
    if clients != cohort.clients.tolist():
        raise TrainingError(
            f"assign() of the strategy {strategy.name!r} planned for the clients {clients} {when}; it should "
            f"plan for {cohort.clients.tolist()}, in this order"
        )
    for a in plan.assignments:
        if type(a.tau) is not int or a.tau < 1 or a.selection.width not in strategy.widths:
            raise TrainingError(
                f"assign() of the strategy {strategy.name!r} gave client {a.client} tau {a.tau!r} at width "
                f"{a.selection.width!r} {when}; tau should be a whole number from 1 on, the width one of "
                f"{', '.join(map(str, strategy.widths))}"
            )
        if not (isinstance(a.batch, int | float) and 0 < a.batch < math.inf):
            raise TrainingError(
                f"assign() of the strategy {strategy.name!r} gave client {a.client} batch {a.batch!r} "
                f"{when}; it should be above 0, where 1 is training.batch_size"
            )
        timed = a.until is None or (isinstance(a.until, int | float) and 0 <= a.until < math.inf)
        if not (timed and isinstance(a.last, int | float) and 0 < a.last <= 1):
            raise TrainingError(
                f"assign() of the strategy {strategy.name!r} gave client {a.client} until {a.until!r} and "
                f"last {a.last!r} {when}; until should be None or seconds from 0 on, last above 0 and at "
                "most 1"
            )
        if a.up_bits not in (None, *UP_BITS) or not (a.up_share is None or 0 < a.up_share <= 1):
            raise TrainingError(
                f"assign() of the strategy {strategy.name!r} gave client {a.client} up_bits {a.up_bits!r} "
                f"and up_share {a.up_share!r} {when}; bits should be one of {', '.join(map(str, UP_BITS))}, "
                "the share above 0 and at most 1"
            )
    return plan


def cut(strategy: Strategy[Any], selection: Selection) -> Cut:
    """Where the tensors of a selection lie in the global ones."""
    with _named(strategy, f"cut() at width {selection.width}"):
        return strategy.cut(selection)


def taken(strategy: Strategy[Any], tensors: Tensors, selection: Selection) -> dict[str, Tensor]:
    """The tensors of a selection."""
    where = cut(strategy, selection)
    with _named(strategy, f"cut() at width {selection.width}"):
        return cut_out(tensors, where)


def with_kept(
    strategy: Strategy[Any], tensors: Tensors, width: int, gather: Gather | None
) -> dict[str, Tensor]:
    """The model of this width as it is tested and handed out: with what its batch norms keep."""
    part = taken(strategy, tensors, strategy.selection(width))
    return part if gather is None else {**part, **gather(part, width)}


def aggregated(
    strategy: Strategy[Any], state: ServerState[Any], plan: Plan, answers: Answers
) -> tuple[ServerState[Any], Facts]:
    """The state after the round, and the facts to record. Clients train while the strategy is asked."""
    watched, when = _Watched(answers), f"in round {state.round + 1}"
    with _named(strategy, f"aggregate() of round {state.round + 1}", watched):
        found = strategy.aggregate(state, plan, iter(watched))
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], ServerState)):
        raise _gave(strategy, "aggregate()", found, when, "a ServerState and the facts to record")
    after, facts = found
    if (trouble := _wrong_state(state, after) or _wrong_facts(facts)) is not None:
        raise TrainingError(f"aggregate() of the strategy {strategy.name!r} {trouble} {when}")
    return after, facts


class _Watched:
    """Answers on their way to the strategy; `error` is what failed before they reached it."""

    def __init__(self, answers: Iterable[tuple[Assignment, Update]]) -> None:
        self.answers = answers
        self.error: BaseException | None = None

    def __iter__(self) -> Answers:
        try:
            yield from self.answers
        except BaseException as error:
            self.error = error
            raise


@contextmanager
def _named(strategy: Strategy[Any], what: str, watched: _Watched | None = None) -> Iterator[None]:
    """Raise errors inside as the strategy's own, unless they are ours or came from elsewhere."""
    try:
        yield
    except HeroesError:
        raise
    except Exception as error:  # a strategy of the user's own can fail in any way
        if watched is not None and watched.error is error:
            raise
        told = f"{said(error)}{place(error)}"
        raise TrainingError(f"the strategy {strategy.name!r} failed in {what}: {told}") from error


def _gave(strategy: Strategy[Any], method: str, given: object, when: str, wanted: str) -> TrainingError:
    where = f" {when}" if when else ""
    return TrainingError(
        f"{method} of the strategy {strategy.name!r} gave a {type(given).__name__}{where}; it should give "
        f"{wanted}"
    )


def _wrong_state(before: ServerState[Any], after: ServerState[Any]) -> str | None:
    """What is wrong with the state after a round, if anything."""
    if after.round != before.round + 1:
        return f"gave a state with round = {after.round!r} instead of {before.round + 1}"
    if after.tensors.keys() != before.tensors.keys():
        odd = sorted(map(str, after.tensors.keys() ^ before.tensors.keys()))[0]
        return f"gave tensors of other names ({odd!r})"
    for name, tensor in after.tensors.items():
        old = before.tensors[name]
        if tensor is old:
            continue
        if not isinstance(tensor, Tensor) or (tensor.shape, tensor.dtype) != (old.shape, old.dtype):
            return f"changed {name!r} from {_kind(old)} to {_kind(tensor)}"
        if not math.isfinite(float(tensor.sum())) and not bool(tensor.isfinite().all()):  # a sum may overflow
            return f"made {name!r} not finite"
    return None


def _kind(tensor: object) -> str:
    return (
        f"{tensor.dtype} {tuple(tensor.shape)}"
        if isinstance(tensor, Tensor)
        else f"a {type(tensor).__name__}"
    )


def _wrong_facts(facts: object) -> str | None:
    """What is wrong with the facts to be recorded, if anything."""
    if not isinstance(facts, Mapping):
        return f"gave facts that are a {type(facts).__name__}, not a mapping,"
    try:
        json.dumps(plain(facts))
    except (TypeError, ValueError, RecursionError) as error:
        return f"gave facts that cannot be written as JSON ({error})"
    return None
