"""An attempt at a round, and the record that is written of the one that counts. The end of a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from heroes.fleet.energy import Price
from heroes.fleet.known import learned
from heroes.messages import (
    Abandoned,
    Assignment,
    ClientRecord,
    Facts,
    Plan,
    RoundRecord,
    ServerState,
    Spent,
    Timing,
    plain,
)
from heroes.server.pairing import Pairing
from heroes.server.privacy import Privacy

M = TypeVar("M")
_TRAINED = {"dropout": 0.0, "crash": 0.5}  # how much of its training a client did that is lost for this cause


@dataclass(frozen=True)
class Attempt(Generic[M]):
    """A round as it was tried: `after` is the state that it would lead to."""

    plan: Plan
    answers: Pairing
    after: ServerState[M]
    facts: Facts
    timing: Timing
    prices: tuple[Price, ...] = ()  # joules of every assignment, if they are known

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

    @cached_property
    def joules(self) -> dict[int, float]:
        """What every client used; nothing if that is not known."""
        trained = {lost.client: _TRAINED.get(lost.cause, 1.0) for lost in self.answers.lost}
        priced = zip(self.plan.assignments, self.prices, strict=True) if self.prices else ()
        return {
            a.client: price.spent(trained.get(a.client, 1.0), a.client in self.arrived) for a, price in priced
        }

    @property
    def energy(self) -> float | None:
        return sum(self.joules.values()) if self.prices else None

    def abandoned(self) -> Abandoned:
        clients, lost = tuple(a.client for a in self.plan.assignments), tuple(self.answers.lost)
        return Abandoned(
            self.timing.duration, self.bytes_up, self.bytes_down, clients, lost, energy=self.energy
        )

    def charged(self, state: ServerState[M]) -> ServerState[M]:
        """The state with the attempt's time and traffic spent, and with what it measured of clients."""
        return replace(
            state,
            seconds=state.seconds + self.timing.duration,
            bytes_up=state.bytes_up + self.bytes_up,
            bytes_down=state.bytes_down + self.bytes_down,
            measured=learned(state.measured, self.timing.measured),
        )


def record(
    tried: Attempt[M],
    abandoned: Sequence[Abandoned],
    *,
    idle: float,
    clock: str,
    privacy: Privacy | None = None,
) -> tuple[ServerState[M], RoundRecord]:
    """Add the round's time and traffic to the state, and write the round down."""
    plan, answers, timing = tried.plan, tried.answers, tried.timing
    state = tried.charged(tried.after)
    losses = [loss for _, loss in answers.answered.values() if loss is not None]
    waited = [
        float(w) for a, w in zip(plan.assignments, timing.waiting, strict=True) if a.client in tried.arrived
    ]
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
        facts=plain({**plan.facts, **tried.facts}),
        missing=tuple(answers.lost),
        clients=tuple(_client(n, a, tried) for n, a in enumerate(plan.assignments)),
        lost=dict(sorted(Counter(one.cause for one in lost).items())),
        abandoned=tuple(abandoned),
        idle=idle,
        clock=clock,
        epsilon=None if privacy is None else privacy.epsilon(state.round),
        noise=None if privacy is None else privacy.source,
        energy=_sum([tried.energy, *(before.energy for before in abandoned)]),
    )


def _client(n: int, a: Assignment, tried: Attempt[Any]) -> ClientRecord:
    samples, loss = tried.answers.answered.get(a.client, (None, None))
    came = a.client in tried.arrived
    spent = tried.timing.spent.get(a.client, Spent(a.compute_seconds, a.transfer_seconds))
    return ClientRecord(
        client=a.client,
        device=a.device,
        width=a.selection.width,
        groups=a.selection.groups,
        pieces=a.selection.pieces,
        tau=a.tau,
        compute_seconds=spent.computing,
        transfer_seconds=spent.travelling,
        waiting=float(tried.timing.waiting[n]) if came else 0.0,
        bytes_up=a.bytes_up if came else 0,
        bytes_down=a.bytes_down,
        straggler=a.straggler,
        loss=loss,
        samples=samples,
        energy=tried.joules.get(a.client),
        start_seconds=spent.starting,
        pause_seconds=spent.pausing,
        memory=spent.memory,
        name=spent.name,
        batch=a.batch,
        last=a.last,
    )


def _sum(joules: Sequence[float | None]) -> float | None:
    known = [each for each in joules if each is not None]
    return sum(known) if len(known) == len(joules) else None


def given_up(needed: int, number: int, abandoned: Sequence[Abandoned]) -> str:
    """The error message of a round that never had enough updates."""
    last = abandoned[-1]
    first, missing = last.missing[0], len({lost.client for lost in last.missing})
    diverged = any(lost.cause == "finite" for lost in last.missing)
    hint = "; a smaller training.learning_rate or a training.clip may help" if diverged else ""
    return (
        f"round {number} was begun {len(abandoned)} times and never had the {needed} updates it needs: the "
        f"last time {missing} of {len(last.clients)} clients were missing, for example client "
        f"{first.client}: {first.reason}{hint}"
    )
