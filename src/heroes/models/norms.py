"""The normalisation of the models that come with heroes: `model.norm`."""

from __future__ import annotations

from torch import nn


def norm_layers(norm: str, groups: int, channels: int, *, images: bool = True) -> list[nn.Module]:
    """What follows a layer of so many channels: one module, or none.

    `batch` takes the statistics of the batch at hand in training; for tests they are gathered once for every
    model (`heroes.models.statistics`).

    >>> len(norm_layers("group", 2, 8)), len(norm_layers("none", 2, 8))
    (1, 0)
    """
    if norm == "none":
        return []
    if norm == "group":
        return [nn.GroupNorm(groups, channels)]
    return [nn.BatchNorm2d(channels) if images else nn.BatchNorm1d(channels)]
