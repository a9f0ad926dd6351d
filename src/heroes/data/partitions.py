"""How examples are shared out over clients. Every partition gives each client at least one example, and none to two.

`iid` and `dirichlet` use every example; `gamma` keeps its proportions exact and leaves out what does not fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from heroes.data.examples import Shares
from heroes.errors import DataError, did_you_mean
from heroes.messages import Integers

Partition = Callable[[Integers, int, np.random.Generator, float], Shares]


def share_out(name: str, labels: Integers, clients: int, rng: np.random.Generator, level: float) -> Shares:
    """Share the examples out by the named partition. `level` is its non-IID level: gamma's percentage, dirichlet's alpha."""
    if name not in PARTITIONS:
        raise DataError(f"unknown partition {name!r}: {did_you_mean(name, PARTITIONS)}")
    if clients > len(labels):
        raise DataError(f"{clients} clients cannot share {len(labels)} examples; use at most {len(labels)} clients")
    return PARTITIONS[name](labels, clients, rng, level)


def iid(labels: Integers, clients: int, rng: np.random.Generator, level: float = 0.0) -> Shares:
    """Shuffled and dealt out evenly."""
    return Shares.of(list(np.array_split(rng.permutation(len(labels)), clients)))


def gamma(labels: Integers, clients: int, rng: np.random.Generator, level: float = 40.0) -> Shares:
    """`level` percent of a client's examples from one class (client n's is n mod C), the rest evenly from the others."""
    classes = np.unique(labels)
    supply = np.array([(labels == c).sum() for c in classes])
    for size in range(len(labels) // clients, 0, -1):
        demand = _gamma_counts(clients, len(classes), size, level)
        if (demand.sum(axis=0) <= supply).all():
            break
    else:
        raise DataError(
            f"partition 'gamma' at {level:g} % needs more examples of some class than there are, even with one example a client "
            f"({clients} clients, classes have {supply.min()} to {supply.max()} examples); use fewer clients"
        )
    pools = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
    cuts = np.concatenate([np.zeros((1, len(classes)), dtype=np.int64), demand.cumsum(axis=0)])
    return Shares.of(
        [np.concatenate([pool[cuts[n, c] : cuts[n + 1, c]] for c, pool in enumerate(pools)]) for n in range(clients)]
    )


def _gamma_counts(clients: int, classes: int, size: int, level: float) -> Integers:
    """How many examples of each class every client gets: (clients, classes)."""
    if classes == 1:
        return np.full((clients, 1), size, dtype=np.int64)
    main = round(level / 100 * size)
    each, extra = divmod(size - main, classes - 1)
    client = np.arange(clients)[:, None]
    offset = (np.arange(classes)[None, :] - client) % classes  # 0 at the main class, then 1 .. C-1
    turn = client // classes * max(extra, 1)  # who gets one more moves on from client to client
    counts = each + ((offset - 1 - turn) % (classes - 1) < extra)
    return np.where(offset == 0, main, counts).astype(np.int64)


def dirichlet(labels: Integers, clients: int, rng: np.random.Generator, level: float = 0.5) -> Shares:
    """Each class is spread over the clients in proportions drawn from Dirichlet(level); small levels are less even."""
    owner = np.empty(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == c))
        edges = np.cumsum(rng.dirichlet(np.full(clients, level)))[:-1] * len(members)
        owner[members] = np.searchsorted(edges, np.arange(len(members)), side="right")
    _nobody_empty(owner, clients, rng)
    order = np.argsort(owner, kind="stable")
    return Shares(order, np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=clients))]))


def _nobody_empty(owner: Integers, clients: int, rng: np.random.Generator) -> None:
    """Give every client without an example one from whoever has the most."""
    sizes = np.bincount(owner, minlength=clients)
    for poor in np.flatnonzero(sizes == 0):
        rich = int(np.argmax(sizes))
        given = rng.choice(np.flatnonzero(owner == rich))
        owner[given] = poor
        sizes[rich] -= 1
        sizes[poor] += 1


PARTITIONS: dict[str, Partition] = {"iid": iid, "gamma": gamma, "dirichlet": dirichlet}
