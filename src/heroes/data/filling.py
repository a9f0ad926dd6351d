"""Shares filled up to their sizes with all examples that are left, as evenly over classes as these allow."""

from __future__ import annotations

import numpy as np

from heroes.messages import Floats, Integers

_ROUNDS = 200  # of fitting; what is still off then is dealt out one by one
_LITTLE = 1e-9  # the weight of a client's main class, of which it has its part already


def filled(demand: Integers, main: Integers, sizes: Integers, supply: Integers) -> Integers:
    """How many examples of each class every client gets (clients, classes) so that the clients' sizes and the
    classes' supply come out exactly, beside what is demanded already. Their main classes come last.
    """
    room, rest = sizes - demand.sum(axis=1), supply - demand.sum(axis=0)
    # of all clients with this main class
    together: Floats = np.bincount(main, room, len(supply)).astype(np.float64)
    part = room / np.maximum(together, 1)[main]
    counts = np.floor(_fitted(together, rest.astype(float))[main] * part[:, None] + _LITTLE).astype(np.int64)
    whole: Integers = demand + counts
    return whole + _one_by_one(room - counts.sum(axis=1), rest - counts.sum(axis=0), main)


def _fitted(rows: Floats, columns: Floats) -> Floats:
    """A square with even weights off its diagonal, scaled to these sums by turns, and at last to no more."""
    square = np.where(np.eye(len(rows), dtype=bool), _LITTLE, 1.0)
    for _ in range(_ROUNDS):
        square *= (columns / np.maximum(square.sum(axis=0), 1e-300))[None, :]
        square *= (rows / np.maximum(square.sum(axis=1), 1e-300))[:, None]
    square *= np.minimum(1.0, columns / np.maximum(square.sum(axis=0), 1e-300))[None, :]
    return square


def _one_by_one(need: Integers, left: Integers, main: Integers) -> Integers:
    """Deal out what rounding down left: each class to those who need most, to its own clients last."""
    need, given = need.copy(), np.zeros((len(need), len(left)), dtype=np.int64)
    for each in np.argsort(-left, kind="stable"):
        remaining = int(left[each])
        while remaining:
            takers = np.lexsort((-need, main == each, need == 0))[:remaining]
            takers = takers[need[takers] > 0]
            given[takers, each] += 1
            need[takers] -= 1
            remaining -= len(takers)
    return given
