"""What a round took, and what was learned of its clients by that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from heroes.messages import Floats


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
