"""An attempt at a round, and the record that is written of the one that counts. The end of a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from heroes.contracts import Spent, Timing
from heroes.fleet.known import learned
from heroes.messages import Abandoned, Assignment, ClientRecord, Facts, Plan, RoundRecord, ServerState, plain
from heroes.server.pairing import Pairing
from heroes.server.privacy import Privacy

M = TypeVar("M")


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
        return Abandoned(
            self.timing.duration, self.bytes_up, self.bytes_down, clients, tuple(self.answers.lost)
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
        start_seconds=spent.starting,
    )


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
