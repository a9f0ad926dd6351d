"""Examples held out of the training set, to choose settings by: the test set is kept for the final word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heroes.data.datasets import Dataset
from heroes.data.examples import DrawnShares, FederatedData, Shares
from heroes.errors import DataError
from heroes.messages import Integers


def held_out(data: Dataset, share: float, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """The training examples that remain and those that are held out, by their numbers.

    Where it is known who made each example, everyone's last ones are held out, since examples of one maker
    may overlap, as windows of a text do. Else they are drawn, the same part of every class if there are any.
    """
    train = data.train
    if data.owners is not None:
        kind = data.owners
    else:
        kind = train.targets.numpy() if train.are_classes else np.zeros(len(train), dtype=np.int64)
    return apart(kind, share, None if data.owners is not None else rng)


def apart(
    kind: Integers, share: float, rng: np.random.Generator | None, key: str = "data.validation"
) -> tuple[Integers, Integers]:
    """Which examples remain and which are held out, a share of each kind: drawn, or without a generator the
    last. `key` is the setting that says how many.
    """
    sizes = np.unique(kind, return_counts=True)[1]
    groups = Shares(np.argsort(kind, kind="stable"), np.concatenate([[0], np.cumsum(sizes)]))
    kept, held = _split(groups, share, rng, key)
    return np.sort(kept.order), np.sort(held)


def held_out_of_shares(
    data: FederatedData, share: float, rng: np.random.Generator
) -> tuple[FederatedData, Integers]:
    """Data that is shared out already, with this part of every client's own held out; and which that is.

    Where clients draw from all examples it is this part of every class.
    """
    shares = data.shares
    if isinstance(shares, Shares):
        kept, held = _split(shares, share, rng)
        return replace(data, shares=kept), held
    if isinstance(shares, DrawnShares):
        kept, held = _split(shares.by_class, share, rng)
        return replace(data, shares=replace(shares, by_class=kept)), held
    raise DataError(
        f"data.validation is {share:g}, but the examples stay on the clients' machines, where nothing can be "
        "held out for the server; use 0"
    )


def _split(
    groups: Shares, share: float, rng: np.random.Generator | None, key: str = "data.validation"
) -> tuple[Shares, Integers]:
    """Take this part out of every group: drawn, or the last where there is no generator.

    What rounding leaves over in one group is taken from the next; nothing takes the last example of a group.
    """
    ends = np.floor(groups.starts * share + 0.5).astype(np.int64)
    counts = np.minimum(np.diff(ends), np.diff(groups.starts) - 1).tolist()
    parts = [groups[n] if rng is None else rng.permutation(groups[n]) for n in range(len(groups))]
    if not sum(counts):
        raise DataError(
            f"{key} is {share:g}: of {len(groups.order)} training examples that leaves none to test on; use "
            "a larger share"
        )
    pairs = list(zip(parts, counts, strict=True))
    held = np.concatenate([part[len(part) - count :] for part, count in pairs])
    return Shares.of([part[: len(part) - count] for part, count in pairs]), held
