"""What a round costs clients in joules: FLOPs times what one costs on the device, bytes times what one costs
on its link. All of it is an estimate; docs/data.md says where the figures come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heroes.messages import Assignment, Cohort, Floats

Pair = tuple[float, float]  # up, down
_UP, _DOWN = 2.5, 15.0  # Mb/s at which the radio's base power is charged: the middle of the paper's links


def radio(base: float, up: float, down: float) -> Pair:
    """Joules per byte up and down of a radio that takes `base` mW while it is active, and this many mW for
    every Mb/s.

    >>> [f"{joules:.3g}" for joules in radio(base=100.0, up=200.0, down=100.0)]
    ['1.92e-06', '8.53e-07']
    """
    mega = 8 / 1e6 / 1e3  # from millijoules per megabit to joules per byte
    return (up + base / _UP) * mega, (down + base / _DOWN) * mega


# Huang et al., A Close Examination of Performance and Power Characteristics of 4G LTE Networks, MobiSys 2012
WIFI = radio(base=132.86, up=283.17, down=137.01)
LTE = radio(base=1288.04, up=438.39, down=51.97)


@dataclass(frozen=True)
class Price:
    """The joules of an assignment: all of its training, its upload, its download."""

    training: float
    up: float
    down: float

    def spent(self, trained: float, sent: bool) -> float:
        """What a client used that did this share of its training, and sent its update or did not."""
        return trained * self.training + self.down + (self.up if sent else 0.0)


@dataclass(frozen=True)
class Energy:
    """Joules per FLOP, per byte up and per byte down of every device class, and the class of every client."""

    device_of: np.ndarray[tuple[int], np.dtype[np.int16]]
    per_flop: Floats
    per_byte_up: Floats
    per_byte_down: Floats

    def prices(self, cohort: Cohort, plan: Sequence[Assignment]) -> tuple[Price, ...]:
        """What every assignment of a plan costs that was made for this cohort."""
        speeds = dict(zip(cohort.clients.tolist(), cohort.speed.tolist(), strict=True))
        return tuple(self._price(a, speeds[a.client]) for a in plan)

    def _price(self, a: Assignment, speed: float) -> Price:
        kind = self.device_of[a.client]
        return Price(
            training=float(a.compute_seconds * speed * self.per_flop[kind]),
            up=float(a.bytes_up * self.per_byte_up[kind]),
            down=float(a.bytes_down * self.per_byte_down[kind]),
        )
