"""The root of a function that rises, by bisection."""

from __future__ import annotations

from collections.abc import Callable


def root(rises: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that never falls is 0, between two bounds; the nearer bound where it is not.

    >>> round(root(lambda x: x * x - 2, 0.0, 2.0), 9), root(lambda x: x, 1.0, 2.0)
    (1.414213562, 1.0)
    """
    if rises(low) >= 0:
        return low
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return high
