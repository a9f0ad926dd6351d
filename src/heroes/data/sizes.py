"""How much each client has, where some have far more than others."""

from __future__ import annotations

import numpy as np

from heroes.errors import DataError, did_you_mean
from heroes.messages import Floats, Integers

SIZES = ("equal", "lognormal", "power")


def weights(kind: str, skew: float, clients: int, rng: np.random.Generator) -> Floats | None:
    """What clients have in relation to each other; None if all have the same.

    `skew` is the standard deviation of the logarithm (lognormal), or the exponent of the law by which the
    n-th largest has 1 / n ** skew of the largest (power).
    """
    if kind == "equal":
        return None
    if kind == "lognormal":
        return np.exp(skew * rng.standard_normal(clients))
    return rng.permutation(np.arange(1, clients + 1) ** -float(skew))


def counts(total: int, weights: Floats) -> Integers:
    """So many examples in proportion to weights, at least one for each; the largest remainders get the rest.

    >>> counts(10, np.array([1.0, 3.0])).tolist()
    [3, 7]
    """
    exact = 1 + (total - len(weights)) * weights / weights.sum()
    found: Integers = np.floor(exact).astype(np.int64)
    found[np.argsort(found - exact, kind="stable")[: total - found.sum()]] += 1
    return found


def refuse(kind: str, partition: str, able: tuple[str, ...]) -> None:
    """Raise an error if a partition decides itself how much everybody has."""
    if kind not in SIZES:
        raise DataError(f"data.sizes is {kind!r}: {did_you_mean(kind, SIZES)}")
    if kind != "equal" and not able:
        raise DataError(
            f"data.sizes is {kind!r}, but data.examples_per_client gives everybody the same number; use "
            "data.sizes = 'equal'"
        )
    if kind != "equal" and partition not in able:
        raise DataError(
            f"data.sizes is {kind!r}, but data.partition = {partition!r} says itself how much each client "
            f"has; use one of {', '.join(able)}, or data.sizes = 'equal'"
        )
