"""Shares that clients draw from all examples: for more clients than examples, millions in little memory.

A partition here is a mix: how many examples of each class a client gets, given its number and a generator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from heroes.data.class_splits import classes_held
from heroes.data.examples import DrawnShares, Shares
from heroes.data.partitions import (
    SplitRequest,
    classes_lacking,
    concentration,
    main_by_device,
    main_class_counts,
    main_in_turn,
    percentage,
)
from heroes.errors import DataError
from heroes.messages import Integers

Mix = Callable[[int, np.random.Generator], Integers]


def draw(name: str, request: SplitRequest, size: int, rng: np.random.Generator) -> DrawnShares:
    """Shares of `size` examples by the named partition."""
    if name not in MIXES:
        what = "its owner made" if name == "natural" else "is in its shards"
        raise DataError(
            f"data.partition is {name!r}, which gives every client all that {what}, but "
            f"data.examples_per_client is {size}; use one of {', '.join(MIXES)}, or "
            "data.examples_per_client = 'none'"
        )
    labels = request.labels
    if not 1 <= size <= len(labels):
        raise DataError(
            f"data.examples_per_client is {size}, but there are {len(labels)} examples; it should be 1 to "
            f"{len(labels)}"
        )
    supply = np.unique(labels, return_counts=True)[1]
    by_class = Shares(np.argsort(labels, kind="stable"), np.concatenate([[0], np.cumsum(supply)]))
    return DrawnShares(
        request.clients, size, int(rng.integers(2**63)), by_class, MIXES[name](request, supply, size)
    )


def _iid(request: SplitRequest, supply: Integers, size: int) -> Mix:
    return partial(_as_they_come, supply=supply, size=size)


def _as_they_come(client: int, rng: np.random.Generator, *, supply: Integers, size: int) -> Integers:
    return rng.multivariate_hypergeometric(supply, size)


def _gamma(request: SplitRequest, supply: Integers, size: int) -> Mix:
    level = percentage(request, "gamma")
    return partial(_with_main_class, main=main_in_turn(request), classes=len(supply), size=size, level=level)


def _by_device(request: SplitRequest, supply: Integers, size: int) -> Mix:
    level = percentage(request, "by_device")
    return partial(
        _with_main_class, main=main_by_device(request), classes=len(supply), size=size, level=level
    )


def _with_main_class(
    client: int, rng: np.random.Generator, *, main: Integers, classes: int, size: int, level: float
) -> Integers:
    counts: Integers = main_class_counts(main[[client]], rng.integers(classes, size=1), classes, size, level)[
        0
    ]
    return counts


def _dirichlet(request: SplitRequest, supply: Integers, size: int) -> Mix:
    return partial(_uneven, supply=supply, size=size, level=concentration(request))


def _uneven(client: int, rng: np.random.Generator, *, supply: Integers, size: int, level: float) -> Integers:
    """Proportions drawn around those of all examples: Dirichlet(level) if classes are of equal size."""
    return rng.multinomial(size, rng.dirichlet(level * len(supply) * supply / supply.sum()))


def _missing(request: SplitRequest, supply: Integers, size: int) -> Mix:
    return partial(_lacking, classes=len(supply), size=size, level=classes_lacking(request, len(supply)))


def _classes(request: SplitRequest, supply: Integers, size: int) -> Mix:
    lacks = len(supply) - classes_held(request, len(supply))
    return partial(_lacking, classes=len(supply), size=size, level=lacks)


def _lacking(client: int, rng: np.random.Generator, *, classes: int, size: int, level: int) -> Integers:
    has = rng.permutation(classes)[level:]
    each, extra = divmod(size, len(has))
    counts = np.zeros(classes, dtype=np.int64)
    counts[has] = each
    counts[has[:extra]] += 1
    return counts


MIXES: dict[str, Callable[[SplitRequest, Integers, int], Mix]] = {
    "iid": _iid,
    "gamma": _gamma,
    "gamma_all": _gamma,
    "dirichlet": _dirichlet,
    "missing": _missing,
    "classes": _classes,
    "by_device": _by_device,
}
