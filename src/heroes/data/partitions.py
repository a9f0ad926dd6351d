"""Deals examples out over clients. Every client gets at least one example, and no example goes to two.

`iid`, `dirichlet` and `gamma_all` use every example, `natural` all of every owner it keeps; `gamma`,
`by_device` and `missing` keep their proportions and leave out what does not fit. `class_splits` has more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heroes.data.examples import Shares
from heroes.data.filling import filled
from heroes.data.sizes import counts
from heroes.errors import DataError
from heroes.messages import Floats, Integers


@dataclass(frozen=True)
class SplitRequest:
    """What is to be shared out, over how many clients, and what is known of examples and clients."""

    labels: npt.NDArray[np.integer[Any]]
    clients: int
    level: float | None = None
    """the non-IID level, where a partition has one; None is its default"""
    owners: Integers | None = None
    """the owner of every example, for `natural`"""
    device_of: npt.NDArray[np.integer[Any]] | None = None
    """the device class of every client, for `by_device`"""
    weights: Floats | None = None
    """how much each client has in relation to others, where that is not the same"""


Partition = Callable[[SplitRequest, np.random.Generator], Shares]


def iid(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """Shuffled and dealt out evenly."""
    order = rng.permutation(len(request.labels))
    if request.weights is None:
        return Shares.of(list(np.array_split(order, request.clients)))
    return Shares(order, np.concatenate([[0], np.cumsum(counts(len(order), request.weights))]))


def gamma(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """data.gamma percent of a client's examples from one class (n mod C), the rest from the others."""
    return _with_main_class(request, main_in_turn(request), rng, "gamma")


def gamma_all(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """As gamma, but all examples are dealt out in equal shares, with less of a rare main class."""
    main, level = main_in_turn(request), percentage(request, "gamma_all")
    supply: Integers = np.unique(request.labels, return_counts=True)[1]
    sizes = len(request.labels) // request.clients + (
        np.arange(request.clients) < len(request.labels) % request.clients
    )
    holders = np.bincount(main, minlength=len(supply))
    fair = supply[main] // holders[main] + (_turns(main) < supply[main] % holders[main])
    demand = np.zeros((request.clients, len(supply)), dtype=np.int64)
    demand[np.arange(request.clients), main] = np.minimum(np.rint(level / 100 * sizes), fair)
    return deal(request.labels, filled(demand, main, sizes, supply), rng)


def main_in_turn(request: SplitRequest) -> Integers:
    """The main class of every client: one after the other."""
    return np.arange(request.clients) % len(np.unique(request.labels))


def by_device(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """As gamma, but the main class follows the device class: weak devices hold other classes."""
    return _with_main_class(request, main_by_device(request), rng, "by_device")


def main_by_device(request: SplitRequest) -> Integers:
    """The main class of every client: classes are dealt to devices in order, then to their clients.

    >>> main_by_device(SplitRequest(np.arange(4), 5, device_of=np.array([0, 1, 0, 1, 0]))).tolist()
    [0, 2, 1, 3, 0]
    """
    if request.device_of is None:
        raise DataError("partition 'by_device' needs the device class of every client, and none was given")
    if len(request.device_of) != request.clients:
        raise DataError(
            f"device_of names the device class of {len(request.device_of)} clients, but there are "
            f"{request.clients}"
        )
    devices, device = np.unique(request.device_of, return_inverse=True)
    classes = len(np.unique(request.labels))
    holder = np.arange(classes) * len(devices) // classes
    main = np.empty(len(device), dtype=np.int64)
    for d in range(len(devices)):
        own = np.flatnonzero(holder == d)
        if len(own) == 0:  # more devices than classes
            own = np.array([d * classes // len(devices)])
        members = np.flatnonzero(device == d)
        main[members] = own[np.arange(len(members)) % len(own)]
    return main


def _with_main_class(request: SplitRequest, main: Integers, rng: np.random.Generator, name: str) -> Shares:
    """The largest equal shares that keep the proportions exact."""
    labels, clients, level = request.labels, request.clients, percentage(request, name)
    supply = np.unique(labels, return_counts=True)[1]
    for size in range(len(labels) // clients, 0, -1):
        demand = main_class_counts(main, _turns(main), len(supply), size, level)
        if (demand.sum(axis=0) <= supply).all():
            return deal(labels, demand, rng)
    raise DataError(
        f"data.partition is {name!r} and data.gamma {level:g}: that needs more examples of some class than "
        f"there are, even with one example a client (classes have {supply.min()} to {supply.max()} examples, "
        f"and federation.clients is {clients}); use fewer clients, or data.partition = 'gamma_all'"
    )


def percentage(request: SplitRequest, name: str) -> float:
    """The level of gamma and by_device."""
    level = 40.0 if request.level is None else request.level
    if not 0 <= level <= 100:
        raise DataError(f"data.gamma is {level:g}; partition {name!r} needs a percentage, 0 to 100")
    return level


def main_class_counts(main: Integers, turn: Integers, classes: int, size: int, level: float) -> Integers:
    """How many examples of each class every client gets (clients, classes); remainders in turn."""
    if classes == 1:
        return np.full((len(main), 1), size, dtype=np.int64)
    of_main = round(level / 100 * size)
    each, extra = divmod(size - of_main, classes - 1)
    offset = (np.arange(classes)[None, :] - main[:, None]) % classes  # 0 at the main class, then 1 .. C-1
    others = each + ((offset - 1 - turn[:, None] * max(extra, 1)) % (classes - 1) < extra)
    return np.where(offset == 0, of_main, others).astype(np.int64)


def _turns(main: Integers) -> Integers:
    """How many clients before each have the same main class.

    >>> _turns(np.array([0, 1, 0, 1, 0])).tolist()
    [0, 0, 1, 1, 2]
    """
    order = np.argsort(main, kind="stable")
    ranked = main[order]
    turns = np.empty(len(main), dtype=np.int64)
    turns[order] = np.arange(len(main)) - np.searchsorted(ranked, ranked)
    return turns


def missing(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """Each client lacks data.phi of the classes and has equally many examples of every other; 0 is IID."""
    supply = np.unique(request.labels, return_counts=True)[1]
    classes, level = len(supply), classes_lacking(request, len(supply))
    has = ~dealt_evenly(request.clients, classes, level, rng)
    holders = has.sum(axis=0)
    each = int((supply // np.maximum(holders, 1))[holders > 0].min())
    if each == 0:
        raise DataError(
            f"data.partition is 'missing' and data.phi {level}: that needs one example of every class for "
            f"each of up to {holders.max()} clients that have it, but there are {supply.min()} of some, and "
            f"federation.clients is {request.clients}; use fewer clients"
        )
    # what is left over: one more for the first
    turn = (has.cumsum(axis=0) - 1 + np.arange(classes)) % np.maximum(holders, 1)
    return deal(request.labels, np.where(has, each + (turn < supply - each * holders), 0), rng)


def classes_lacking(request: SplitRequest, classes: int) -> int:
    """The level of missing."""
    level = 40 if request.level is None else request.level
    if level != int(level) or not 0 <= level < classes:
        raise DataError(
            f"data.phi is {level:g}; for partition 'missing' it is the number of classes that a client "
            f"lacks, 0 to {classes - 1}, as there are {classes}"
        )
    return int(level)


def dealt_evenly(clients: int, classes: int, level: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which classes each client lacks (clients, classes), dealt so that all lack equally often."""
    lacks = np.zeros((clients, classes), dtype=bool)
    deck: list[int] = []
    for client in range(clients):
        hand, deck = deck[:level], deck[level:]
        if len(hand) < level:
            fresh = rng.permutation(classes).tolist()
            fresh.sort(key=hand.__contains__)  # those in hand go to the bottom: nobody lacks a class twice
            short = level - len(hand)
            hand, deck = hand + fresh[:short], fresh[short:]
        lacks[client, hand] = True
    return lacks


def deal(labels: npt.NDArray[np.integer[Any]], demand: Integers, rng: np.random.Generator) -> Shares:
    """Give every client the number of examples of each class that it is due: demand is (clients, classes)."""
    pools = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    cuts = np.concatenate([np.zeros((1, len(pools)), dtype=np.int64), demand.cumsum(axis=0)])
    return Shares.of(
        [
            np.concatenate([pool[cuts[n, c] : cuts[n + 1, c]] for c, pool in enumerate(pools)])
            for n in range(len(demand))
        ]
    )


def natural(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """A client is whoever made the examples, a role or a writer; spare owners are left out."""
    if request.owners is None:
        raise DataError(
            "data.partition is 'natural', which needs to know who made each example, and this data does not "
            "say; use another"
        )
    if len(request.owners) != len(request.labels):
        raise DataError(
            f"there are {len(request.labels)} examples but {len(request.owners)} owners; each example needs "
            "one"
        )
    names, owner, sizes = np.unique(request.owners, return_inverse=True, return_counts=True)
    if request.clients > len(names):
        raise DataError(
            f"federation.clients is {request.clients}, but for data.partition = 'natural' there are "
            f"{len(names)} owners of examples; use at most {len(names)} clients"
        )
    kept = np.sort(rng.choice(len(names), request.clients, replace=False))
    order = np.argsort(owner, kind="stable").astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    return Shares.of([order[starts[n] : starts[n] + sizes[n]] for n in kept])


def dirichlet(request: SplitRequest, rng: np.random.Generator) -> Shares:
    """Each class is spread in proportions drawn from Dirichlet(data.alpha); a small one is less even."""
    labels, clients, level = request.labels, request.clients, concentration(request)
    equal = np.full(clients, level)
    base = equal if request.weights is None else clients * level * request.weights / request.weights.sum()
    owner = np.empty(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == c))
        edges = np.cumsum(rng.dirichlet(base))[:-1] * len(members)
        owner[members] = np.searchsorted(edges, np.arange(len(members)), side="right")
    _nobody_empty(owner, clients, rng)
    order = np.argsort(owner, kind="stable")
    return Shares(order, np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=clients))]))


def concentration(request: SplitRequest) -> float:
    """The level of dirichlet."""
    level = 0.5 if request.level is None else request.level
    if not level > 0:
        raise DataError(f"data.alpha is {level:g}; partition 'dirichlet' needs a number above 0")
    return level


def _nobody_empty(owner: Integers, clients: int, rng: np.random.Generator) -> None:
    """Give every client without an example one from whoever has the most."""
    sizes = np.bincount(owner, minlength=clients)
    for poor in np.flatnonzero(sizes == 0):
        rich = int(np.argmax(sizes))
        given = rng.choice(np.flatnonzero(owner == rich))
        owner[given] = poor
        sizes[rich] -= 1
        sizes[poor] += 1
