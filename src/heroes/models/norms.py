"""The normalisation of the models that come with heroes: `model.norm`."""

from __future__ import annotations

from torch import nn


def norm_layers(norm: str, groups: int, channels: int, *, images: bool = True) -> list[nn.Module]:
    """What follows a layer of so many channels: one module, or none.

    `batch` keeps no running statistics, which clients would not agree on: it takes those of the batch at
    hand, in tests too.

    >>> len(norm_layers("group", 2, 8)), len(norm_layers("none", 2, 8))
    (1, 0)
    """
    if norm == "none":
        return []
    if norm == "group":
        return [nn.GroupNorm(groups, channels)]
    kind = nn.BatchNorm2d if images else nn.BatchNorm1d
    return [kind(channels, track_running_stats=False)]
