"""Splits by a few classes for each client: so many of them, or so many shards of sorted examples."""

from __future__ import annotations

import numpy as np

from heroes.data.examples import Shares
from heroes.data.partitions import SplitRequest, deal, dealt_evenly
from heroes.data.sizes import counts
from heroes.errors import DataError
from heroes.messages import Integers


def classes(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """Each client has data.classes_per_client classes, and those who have a class share all of it."""
    supply = np.unique(request.labels, return_counts=True)[1]
    has = ~dealt_evenly(request.clients, len(supply), len(supply) - classes_held(request, len(supply)), rng)
    demand = np.zeros(has.shape, dtype=np.int64)
    for each, there in enumerate(supply):
        holders = np.flatnonzero(has[:, each])
        if len(holders) > there:
            raise DataError(
                f"data.partition is 'classes': {len(holders)} clients would share a class of {there} "
                "examples; use fewer clients, or a smaller data.classes_per_client"
            )
        weights = np.ones(request.clients) if request.weights is None else request.weights
        if len(holders):
            demand[holders, each] = counts(int(there), weights[holders])
    return deal(request.labels, demand, rng)


def classes_held(request: SplitRequest, there: int) -> int:
    """The level of classes."""
    level = 2 if request.level is None else request.level
    if level != int(level) or not 1 <= level <= there:
        raise DataError(
            f"data.classes_per_client is {level:g}; for partition 'classes' it is 1 to {there}, as there are "
            f"{there} classes"
        )
    return int(level)


def shards(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """Examples sorted by class are cut into shards of one size, and each client gets data.shards of them."""
    level = 2 if request.level is None else int(request.level)
    pieces, there = level * request.clients, len(request.labels)
    if pieces > there:
        raise DataError(
            f"data.partition is 'shards': {request.clients} clients with data.shards = {level} each need "
            f"{pieces} examples or more, but there are {there}; use fewer"
        )
    order: Integers = rng.permutation(there)
    cut = np.array_split(order[np.argsort(request.labels[order], kind="stable")], pieces)
    dealt = rng.permutation(pieces).reshape(request.clients, level)
    return Shares.of([np.concatenate([cut[n] for n in hand]) for hand in dealt])
