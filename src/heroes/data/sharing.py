"""Shares examples out: dealt, each to one client at most, or drawn by every client from all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from heroes.data import sizes
from heroes.data.class_splits import classes, shards
from heroes.data.drawing import draw
from heroes.data.examples import DrawnShares, Shares
from heroes.data.partitions import (
    Partition,
    SplitRequest,
    by_device,
    dirichlet,
    gamma,
    gamma_all,
    iid,
    missing,
    natural,
)
from heroes.errors import DataError, did_you_mean
from heroes.messages import Integers

PARTITIONS: dict[str, Partition] = {
    "iid": iid,
    "gamma": gamma,
    "gamma_all": gamma_all,
    "dirichlet": dirichlet,
    "missing": missing,
    "classes": classes,
    "shards": shards,
    "natural": natural,
    "by_device": by_device,
}
MAY_LEAVE_OUT = ("gamma", "by_device", "missing", "classes")
"""what does not fit their proportions, or classes that no client has"""
_UNEVEN = ("iid", "dirichlet", "classes")


def share_out(
    name: str,
    labels: npt.NDArray[Any],
    clients: int,
    rng: np.random.Generator,
    level: float | None = None,
    *,
    owners: Integers | None = None,
    device_of: npt.NDArray[np.integer[Any]] | None = None,
    examples_per_client: int | None = None,
    size_kind: str = "equal",
    skew: float = 1.0,
) -> Shares | DrawnShares:
    """Share the examples out by the named partition.

    Args:
        name: of the partition.
        labels: of the examples, one each.
        clients: how many share them.
        rng: what to draw from.
        level: its non-IID level: the percentage of gamma and by_device, dirichlet's alpha, the number of
            classes missing or held, of shards.
        owners: who made each example, for natural.
        device_of: the device class of every client, for by_device.
        examples_per_client: every client draws that many from all examples, and there may be more clients
            than examples.
        size_kind: how unequal shares are (`sizes`).
        skew: by how much.
    """
    if name not in PARTITIONS:
        raise DataError(f"data.partition is {name!r}: {did_you_mean(name, PARTITIONS)}")
    if not (labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)):
        labels = _all_alike(name, labels)
    sizes.refuse(size_kind, name, _UNEVEN if examples_per_client is None else ())
    weights = sizes.weights(size_kind, skew, clients, rng)
    request = SplitRequest(labels, clients, level, owners, device_of, weights)
    if examples_per_client is not None:
        return draw(name, request, examples_per_client, rng)
    if clients > len(labels):
        raise DataError(
            f"federation.clients is {clients}, but there are {len(labels)} examples to share; use at most "
            f"{len(labels)} clients, or let clients have examples in common: data.examples_per_client "
            "says how many each draws"
        )
    return PARTITIONS[name](request, rng)


def _all_alike(name: str, targets: npt.NDArray[Any]) -> Integers:
    """Targets that are no class labels can be shared out only where labels do not matter."""
    if name not in ("iid", "natural"):
        raise DataError(
            f"data.partition is {name!r}, which goes by class labels, but targets are {targets.dtype} of "
            f"shape {targets.shape}; use iid, or natural where it is known who made each example"
        )
    return np.zeros(len(targets), dtype=np.int64)
