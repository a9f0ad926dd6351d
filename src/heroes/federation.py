"""What takes part in a run, and its rules: plain settings and ports. `rounds` says what happens with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from heroes.client.extras import Extra
from heroes.contracts import Availability, Clock, Devices, Engine, Sampler, ServerOptimiser, Strategy
from heroes.fleet.availability import Everybody
from heroes.fleet.energy import Energy
from heroes.messages import TESTS, RoundRecord, Score, ServerState, Tensors, reaches, settled
from heroes.models.family import Family
from heroes.server.asking import Gather, with_kept
from heroes.server.defence import Defence
from heroes.server.privacy import Privacy
from heroes.server.sampling import Uniform
from heroes.slices.feedback import Feedback


@dataclass(frozen=True)
class Stop:
    """When to stop: whichever comes first. Targets of a metric count by the mean of the last three tests."""

    rounds: int
    seconds: float | None = None
    traffic: int | None = None
    accuracy: float | None = None
    loss: float | None = None
    target: float | None = None  # for the main metric
    patience: int | None = None  # tests that need not be better than the best

    @property
    def needs_scores(self) -> bool:
        """Whether a test of the model may end the run."""
        return any(limit is not None for limit in (self.accuracy, self.target, self.patience))

    @property
    def remembers(self) -> int | None:
        """How many tested rounds `reason` looks back on; None for all."""
        return TESTS if self.patience is None else None

    def reason(self, record: RoundRecord, before: Sequence[RoundRecord] = ()) -> str | None:
        """Why the run ends with this round, or None. `before` are the rounds before it, oldest first."""
        rows = [*before, record]
        if _reached(rows, "accuracy", self.accuracy, lower_is_better=False):
            return "target accuracy"
        if _reached(rows, record.metric, self.target, lower_is_better=record.lower_is_better):
            return f"target {record.metric}"
        if self.patience is not None and _since_best(rows, record) >= self.patience:
            return f"no better for {self.patience} test{'s' * (self.patience > 1)}"
        if self.loss is not None and record.loss is not None and record.loss <= self.loss:
            return "target loss"
        if self.seconds is not None and record.seconds >= self.seconds:
            return "time budget"
        if self.traffic is not None and record.traffic >= self.traffic:
            return "traffic budget"
        return "rounds" if record.round >= self.rounds else None


def _reached(rows: Sequence[RoundRecord], name: str, target: float | None, *, lower_is_better: bool) -> bool:
    """Whether the test after the last of these rounds brings a metric to its target."""
    if target is None or name not in rows[-1].scores:
        return False
    score = settled([row.scores[name] for row in rows if name in row.scores])
    return score is not None and reaches(score, target, lower_is_better)


def _since_best(rows: Sequence[RoundRecord], last: RoundRecord) -> int:
    """How many tests came after the best one by the main metric; 0 where the last round was not tested."""
    if last.score is None:
        return 0
    scores = [row.score for row in rows if row.score is not None]
    best = min(scores) if last.lower_is_better else max(scores)
    return len(scores) - 1 - scores.index(best)


@dataclass(frozen=True)
class Policy:
    """What the server does when clients are missing: see `heroes.settings.sections.ServerConfig`."""

    at_least: int = 1
    attempts: int = 5
    oversample: float = 1.0


@dataclass(frozen=True)
class Federation:
    """Everything that takes part in a run. Nothing in it changes; what changes is the state."""

    strategy: Strategy[Any]
    engine: Engine
    clock: Clock
    fleet: Devices
    cohort: int
    seed: int
    family: Family
    sends: tuple[Extra, ...] = ()  # what clients send besides their tensors
    down_bits: int = 32
    feedback: Feedback | None = None  # how clients' rounding residuals are kept in a simulation
    availability: Availability = field(default_factory=Everybody)
    sampler: Sampler = field(default_factory=Uniform)
    policy: Policy = field(default_factory=Policy)
    defence: Defence | None = None  # None lets every well-formed update in
    privacy: Privacy | None = None
    optimiser: ServerOptimiser | None = None
    average: float = 0.0  # weight of the past in the moving average of the model; 0 is none
    lookback: float = 1.0  # how old that average may be, as a share of the rounds so far
    sampled: bool = False  # whether tests during the run take a sample of the test set
    precision: str = "float32"  # in what clients compute
    inputs: Tensor | None = None  # a few of the test set's, as the model takes them
    energy: Energy | None = None  # what clients use, if it is known
    gather: Gather | None = None  # what batch norms need for tests; None if there are none

    def served(self, state: ServerState[Any]) -> Tensors:
        """The model that is tested and handed out: the global one, or its moving average."""
        return state.averaged if self.average and state.averaged else state.tensors

    def score(self, state: ServerState[Any], width: int) -> Callable[[], Score]:
        """Begin to test the model of this width; call what is returned for how good it is."""
        return self.engine.score(self.model(state, width), width)

    def glance(self, state: ServerState[Any]) -> Callable[[], Score]:
        """Begin to test the complete model during the run: on the sample, if there is one."""
        complete = self.strategy.widths[-1]
        if not self.sampled:
            return self.score(state, complete)
        return self.engine.score(self.model(state, complete), complete, sample=True)

    def model(self, state: ServerState[Any], width: int) -> Tensors:
        """The tensors of the model of this width, as it is tested and handed out."""
        return with_kept(self.strategy, self.served(state), width, self.gather)
