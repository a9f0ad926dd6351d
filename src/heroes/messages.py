"""The nouns of a round: what the server knows, decides, sends, gets back and writes down.

    Cohort -> Plan of Assignments -> Task -> Update -> ServerState, RoundRecord

All are frozen and have no behaviour. Decisions (`Assignment`), payload (`Task.tensors`, `Update.tensors`) and
measurements (`Update.measured`, `Facts`) are kept apart. Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
LARGEST = 1e300  # of a number in a record; sums of many such are still finite
SHARES = ("accuracy", "f1")  # metrics from 0 to 1, written in percent
LEAST_PART = 0.25  # of a batch that is worth a step, for a client that goes by its own clock
_STRETCHED = 2  # how many times its planned steps a client may do that goes by its own clock
TESTS = 3  # in a row, whose mean must be at a target for it to count as reached
Facts = Mapping[str, Any]
"""What a strategy wants recorded of a round, by name: numbers, words, and lists or mappings of them."""


@dataclass(frozen=True)
class Cohort:
    """The clients of one round and their status, one array per property, all in the same order."""

    clients: Integers
    devices: tuple[str, ...]
    speed: Floats  # FLOP/s of this round
    upload: Floats  # bytes per second
    download: Floats  # bytes per second
    overhead: Floats  # seconds that a round takes whatever is computed and sent
    fastest: float  # FLOP/s of the fastest device that there is, in the cohort or not
    usual: Floats  # FLOP/s on an ordinary day; widths go by it, so that they do not change with the weather

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Selection:
    """Which part of the global model a client trains: its width, and the numbers that a strategy cuts it by.

    `groups` are the channel groups that the client gets. `pieces` is whatever else a strategy needs: the
    coefficient blocks laid into the width x width grid, or where a window of channels begins.
    """

    width: int
    groups: tuple[int, ...] = ()
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True)
class Assignment:
    """Everything the server decided for one client in one round, as plain numbers."""

    round: int
    client: int
    device: str
    selection: Selection
    tau: int
    learning_rate: float
    step_seconds: float  # mu: one local step
    probe_seconds: float  # the gradients spent on the estimates
    transfer_seconds: float  # nu: down and up
    bytes_down: int
    bytes_up: int
    straggler: bool = False
    probes: bool = True  # whether the client makes estimates this time, if the strategy wants any
    attempt: int = 0  # a round that too few answered is begun again
    nonce: int = 0  # whoever answers must know it
    up_bits: int | None = None  # of a value on its way up; None is what the configuration says
    up_share: float | None = None  # of a change's values that travel up, the largest; None likewise
    batch: float = 1.0  # examples of a step, as a multiple of training.batch_size, rounded down
    last: float = 1.0  # share of the last step's batch that it takes
    until: float | None = None  # it computes so many seconds by its own clock, and tau is a guess; None: tau

    @property
    def steps(self) -> float:
        """How many steps it does, of which the last may be part of one."""
        return self.tau - 1 + self.last

    @property
    def most_steps(self) -> int:
        """The most steps that it may do."""
        return self.tau if self.until is None else _STRETCHED * self.tau

    @property
    def compute_seconds(self) -> float:
        return self.steps * self.step_seconds + self.probe_seconds

    @property
    def seconds(self) -> float:
        return self.compute_seconds + self.transfer_seconds


@dataclass(frozen=True)
class Plan:
    """The assignments of a round, and what the strategy wants recorded about how it chose them."""

    assignments: tuple[Assignment, ...]
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """What travels to a client: its assignment, its slice of the model and the seed of its randomness."""

    assignment: Assignment
    tensors: Tensors
    seed: int
    residuals: Tensors | None = None  # what the client's earlier roundings left out, under error feedback


@dataclass(frozen=True)
class Update:
    """What comes back from a client.

    `measured` are non-negative numbers that the client measured about its loss, by name; `extras` are tensors
    besides the model. Which ones are sent is up to the strategy.
    """

    client: int
    round: int
    tensors: Tensors
    samples: int
    loss: float = math.nan  # mean over the local steps; NaN: not known
    measured: Mapping[str, float] = field(default_factory=dict)
    extras: Tensors = field(default_factory=dict)
    residuals: Tensors | None = None  # what this rounding left out; stays with the client, does not travel
    nonce: int = 0  # of the assignment it answers
    steps: float | None = None  # that it did, the last perhaps in part, where this was up to its own clock


@dataclass(frozen=True)
class Lost:
    """A client whose update does not count, the reason, and the cause under which it is counted."""

    client: int
    reason: str
    cause: str = "failed"
    arrived: bool = False  # whether an update came, and was refused


@dataclass(frozen=True)
class Score:
    """How good a model is on the test set: its mean loss, and every metric by name, the main one first."""

    loss: float
    metrics: Mapping[str, float]
    lower_is_better: bool = False  # of the main metric

    @property
    def metric(self) -> str:
        """The name of the main metric."""
        return next(iter(self.metrics))

    @property
    def accuracy(self) -> float | None:
        return self.metrics.get("accuracy")


Memory = TypeVar("Memory")


@dataclass(frozen=True)
class ServerState(Generic[Memory]):
    """All that the server remembers between rounds.

    `memory` belongs to the strategy and `sampler` to the sampler; both hold plain values only.
    """

    round: int  # rounds done
    tensors: Tensors
    memory: Memory
    seconds: float = 0.0  # time spent
    bytes_up: int = 0
    bytes_down: int = 0
    # what rounding left out of clients' uploads
    residuals: Mapping[int, Tensors] = field(default_factory=dict)
    # what is known of how fast clients are, where plans are made with that
    measured: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    sampler: Any = None  # JSON values
    moments: Mapping[str, Tensors] = field(default_factory=dict)  # of the server optimiser: kind, then tensor
    averaged: Tensors = field(default_factory=dict)  # the moving average of the model; empty when it is off


@dataclass(frozen=True)
class Measurement:
    """What a client did: FLOPs in `training` seconds, above 0, and `moved` bytes in `besides` seconds."""

    client: int
    flops: float
    training: float
    moved: int
    besides: float
    weight: float = 0.5  # of this measurement in the running mean
    first: tuple[float, float] | None = None  # FLOP/s and seconds besides that the mean starts from, if any


class Spent(NamedTuple):
    """The seconds that a client spent on each part of a round, and what its node said of itself."""

    computing: float
    travelling: float
    starting: float = 0.0
    pausing: float = 0.0
    memory: int | None = None  # bytes
    name: str = ""


@dataclass(frozen=True)
class Timing:
    """What a round took: its duration T, and when the server heard of each client, in plan order.

    `finished` is at most T. `spent` is what clients spent their seconds on, if that was measured. `measured`
    is what was learned of clients, late ones too, in the order it was heard.
    """

    duration: float
    finished: Floats
    spent: Mapping[int, Spent] = field(default_factory=dict)
    measured: tuple[Measurement, ...] = ()

    @property
    def waiting(self) -> Floats:
        return self.duration - self.finished


@dataclass(frozen=True)
class ClientRecord:
    """One client's part in a round."""

    client: int
    device: str
    width: int
    groups: tuple[int, ...]
    pieces: tuple[int, ...]
    tau: int
    compute_seconds: float  # as it took in virtual time; measured under the wall clock, or planned if not in
    transfer_seconds: float
    waiting: float
    bytes_up: int
    bytes_down: int
    straggler: bool
    loss: float | None
    samples: int | None
    energy: float | None = None  # joules, estimated; None: not known
    start_seconds: float = 0.0  # until the process of a deployed client could train; not part of a transfer
    pause_seconds: float = 0.0  # Flower's, between two looks; part of the transfer if nobody measured
    memory: int | None = None  # bytes that all processes of a deployed client's node held; None: not known
    name: str = ""  # of its node, if it has one
    batch: float = 1.0  # examples of a step, as a multiple of training.batch_size
    last: float = 1.0  # share of the last step's batch


@dataclass(frozen=True)
class Abandoned:
    """An attempt that too few clients answered. None of it entered the model, but its time is spent."""

    duration: float
    bytes_up: int
    bytes_down: int
    clients: tuple[int, ...]
    missing: tuple[Lost, ...]
    energy: float | None = None


@dataclass(frozen=True, repr=False)
class RoundRecord:
    """One line of `records.jsonl`: numbers and names. Seconds are the clock's, bytes are on the wire."""

    round: int
    seconds: float  # time at the end of the round
    duration: float  # T: until the last update, or the deadline; of the attempt that counted
    waiting: float  # W: mean over the clients that were in of T - T_n
    bytes_up: int
    bytes_down: int
    traffic: int  # bytes both ways since the start
    learning_rate: float
    loss: float | None
    missing: tuple[Lost, ...]
    clients: tuple[ClientRecord, ...]
    facts: Facts = field(default_factory=dict)  # whatever the strategy says
    # how many updates are missing by cause, abandoned attempts included
    lost: Mapping[str, int] = field(default_factory=dict)
    abandoned: tuple[Abandoned, ...] = ()  # attempts at this round that too few answered
    idle: float = 0.0  # seconds until enough clients were awake
    clock: str = "virtual"  # or wall: what seconds are
    epsilon: float | None = None  # privacy spent so far, at the configured delta; see `noise`
    noise: str | None = (
        None  # what hides clients is drawn from: the system, or the seed: then epsilon is a study's
    )
    metric: str = "accuracy"  # the main one of the scores: curves, tables and targets go by it
    lower_is_better: bool = False  # of the main metric
    # of the complete model, when it was tested: on the sample if there is one, else on the whole test set
    scores: Mapping[str, float] = field(default_factory=dict)
    test_loss: float | None = None
    # on the whole test set, in the last record
    scores_by_width: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    stopped: str | None = None  # why the run ended with this round
    energy: float | None = None  # joules of all clients, abandoned attempts too, estimated; None: not known

    def __repr__(self) -> str:
        """What fits into a line; the file, or `plain(record)`, has all of it."""
        names = ("round", "seconds", "traffic", "loss")
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"<RoundRecord: {said}, scores={dict(self.scores)!r}, {len(self.clients)} clients>"

    @property
    def score(self) -> float | None:
        """The main metric of the complete model; None in a round after which it was not tested."""
        return self.scores.get(self.metric)

    @property
    def accuracy(self) -> float | None:
        return self.scores.get("accuracy")

    @property
    def score_by_width(self) -> dict[int, float]:
        """The main metric at every width, in the last record."""
        found = self.scores_by_width.items()
        return {width: scores[self.metric] for width, scores in found if self.metric in scores}

    @property
    def final_scores(self) -> Mapping[str, float]:
        """The complete model on the whole test set in the last record; elsewhere the scores of the round."""
        widths = self.scores_by_width
        return widths[max(widths)] if widths else self.scores


def settled(scores: Sequence[float]) -> float | None:
    """What a target is compared with: the mean of the last three tests. None while there are fewer.

    One lucky test does not reach a target.

    >>> settled([0.5, 0.9, 0.7, 0.8]), settled([0.9, 0.9])
    (0.8, None)
    """
    last = scores[-TESTS:]
    return round(fmean(last), 12) if len(last) == TESTS else None  # 0.95, not 0.9499999999999998


def reaches(score: float, target: float, lower_is_better: bool) -> bool:
    """Whether a score is at the target or better."""
    return score <= target if lower_is_better else score >= target


def plain(value: Any) -> Any:
    """A message as JSON-ready values: dataclasses become dicts, and infinite or huge numbers None.

    >>> plain(Lost(client=3, reason="loss is nan"))
    {'client': 3, 'reason': 'loss is nan', 'cause': 'failed', 'arrived': False}
    """
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if abs(value) < LARGEST else None
    return value
