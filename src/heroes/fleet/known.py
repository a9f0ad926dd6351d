"""What is known of clients from what they did: running means of speed and of what a round takes them besides.

`ServerState.measured` holds it: FLOP/s; seconds besides training; bytes; their variance; their covariance.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from heroes.contracts import Known
from heroes.messages import Floats, Measurement

_PRIOR = (
    0.1  # how far bytes must have differed, as a share of them, for what a byte takes to be believed by half
)


def besides_training(rows: Floats) -> tuple[Floats, Floats]:
    """The seconds that a byte takes, and those that a round takes besides, of what is known of clients."""
    _, besides, moved, variance, covariance = rows.T
    a_byte = np.clip(covariance / (variance + (_PRIOR * moved) ** 2), 0.0, besides / moved)
    return a_byte, besides - a_byte * moved


def learned(known: Known, measurements: Iterable[Measurement]) -> Known:
    """What is known of clients after these measurements of them, in running means."""
    after = dict(known)
    for one in measurements:
        after[one.client] = _mean(after.get(one.client), one)
    return dict(sorted(after.items()))


def _mean(known: tuple[float, ...] | None, one: Measurement) -> tuple[float, ...]:
    speed = one.flops / one.training
    if known is None and one.first is not None:
        known = *one.first, float(one.moved), 0.0, 0.0
    if known is None:
        return float(speed), float(one.besides), float(one.moved), 0.0, 0.0
    before = np.array(known)
    more, longer = one.moved - before[2], one.besides - before[1]
    means = before[:3] + one.weight * (np.array([speed, one.besides, one.moved]) - before[:3])
    spread = (1 - one.weight) * (before[3:] + one.weight * more * np.array([more, longer]))
    return (*means.tolist(), *spread.tolist())
