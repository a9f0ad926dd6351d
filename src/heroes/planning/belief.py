"""Numbers that clients say of themselves, and which of them are believed: one lie must not decide for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heroes.messages import Floats

MOST = 30.0  # times the median; with ten clients, a single number below it moves tau by less than twice
_ENOUGH = 3  # numbers, below which the median says nothing about one of them


def believed(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of these numbers, from 0 on, are at most `MOST` times the median of those above 0.

    Small ones need no limit: in a mean over n, one of them takes away no more than an nth.

    >>> believed([1.0, 2.0, 0.0, 1e12, 3.0]).tolist()
    [True, True, True, False, True]
    """
    given = np.asarray(values, dtype=np.float64)
    return given <= _limit(given)


def bounded(values: Sequence[float]) -> Floats:
    """These numbers, from 0 on, none above `MOST` times their median."""
    given = np.asarray(values, dtype=np.float64)
    return np.minimum(given, _limit(given))


def _limit(given: Floats) -> float:
    above = given[given > 0]
    return float(MOST * np.median(above)) if len(above) >= _ENOUGH else np.inf
