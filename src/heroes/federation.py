"""All that takes part in a run, and the rules by which it goes: plain settings and ports, no behaviour of
rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from heroes.client.extras import Extra
from heroes.contracts import Clock, Engine, Strategy
from heroes.fleet.devices import Fleet
from heroes.fleet.faults import Faults, Mask
from heroes.fleet.wall import MeasuredFleet
from heroes.messages import Assignment, RoundRecord, Score, ServerState
from heroes.models.family import Family
from heroes.server.defence import Defence
from heroes.server.privacy import Privacy
from heroes.slices.cuts import Cut, cut_out
from heroes.slices.exchange import Feedback


@dataclass(frozen=True)
class Stop:
    """When to stop: whichever comes first."""

    rounds: int
    seconds: float | None = None
    traffic: int | None = None
    accuracy: float | None = None
    loss: float | None = None
    target: float | None = None  # for the main metric

    @property
    def needs_scores(self) -> bool:
        """Whether a test of the model may end the run."""
        return self.accuracy is not None or self.target is not None

    def reason(self, record: RoundRecord) -> str | None:
        """Why the run ends with this round, or None."""
        if self.accuracy is not None and record.accuracy is not None and record.accuracy >= self.accuracy:
            return "target accuracy"
        if self._reached(record):
            return f"target {record.metric}"
        if self.loss is not None and record.loss is not None and record.loss <= self.loss:
            return "target loss"
        if self.seconds is not None and record.seconds >= self.seconds:
            return "time budget"
        if self.traffic is not None and record.traffic >= self.traffic:
            return "traffic budget"
        return "rounds" if record.round >= self.rounds else None

    def _reached(self, record: RoundRecord) -> bool:
        value = record.scores.get(record.metric)
        if self.target is None or value is None:
            return False
        return value <= self.target if record.lower_is_better else value >= self.target


@dataclass(frozen=True)
class Policy:
    """What the server does when clients are missing: see `heroes.settings.sections.ServerConfig`."""

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
    sends: tuple[Extra, ...] = ()  # what clients send besides their tensors
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
