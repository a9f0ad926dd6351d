"""Which blocks a client gets, and how many local steps keep all blocks evenly trained.

The global coefficient of every layer has P*P blocks; block a*P + b joins input group a to output group b. A counter per block
says how many local steps it has received. Plain numbers only.

>>> choose("grid", np.array([9, 9, 9, 0]), 1)
Selection(width=1, groups=(1,), blocks=(3,))
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from heroes.messages import Integers, Selection

_ALL_SUBSETS_UP_TO = 8  # wider grids choose their groups greedily


def grid_selection(groups: tuple[int, ...], max_width: int) -> Selection:
    """The blocks that join the given groups to each other."""
    blocks = tuple(a * max_width + b for a in groups for b in groups)
    return Selection(len(groups), groups, blocks)


def choose(choice: str, counters: Integers, width: int) -> Selection:
    """The least trained part of the model that has this width."""
    max_width = math.isqrt(len(counters))
    if choice == "nested" or width == max_width:
        return grid_selection(tuple(range(width)), max_width)
    if choice == "grid":
        return grid_selection(_least_groups(counters, width, max_width), max_width)
    return _free(counters, width, max_width)


def _free(counters: Integers, width: int, max_width: int) -> Selection:
    """The width*width smallest counters, wherever they are; groups are those whose rows and columns are least trained."""
    blocks = sorted(np.argsort(counters, kind="stable")[: width**2].tolist())
    grid = counters.reshape(max_width, max_width)
    per_group = grid.sum(axis=0) + grid.sum(axis=1)
    groups = sorted(np.argsort(per_group, kind="stable")[:width].tolist())
    return Selection(width, tuple(groups), tuple(blocks))


def _least_groups(counters: Integers, width: int, max_width: int) -> tuple[int, ...]:
    if max_width > _ALL_SUBSETS_UP_TO:
        return _greedy_groups(counters.reshape(max_width, max_width), width)
    subsets, membership = _subsets(max_width, width)
    return subsets[int(np.argmin(membership @ counters))]


@lru_cache(maxsize=256)
def _subsets(max_width: int, width: int) -> tuple[tuple[tuple[int, ...], ...], Integers]:
    """Every choice of `width` groups, and for each the 0/1 row of the blocks it holds."""
    subsets = tuple(itertools.combinations(range(max_width), width))
    membership = np.zeros((len(subsets), max_width**2), dtype=np.int64)
    for row, groups in enumerate(subsets):
        membership[row, list(grid_selection(groups, max_width).blocks)] = 1
    return subsets, membership


def _greedy_groups(grid: Integers, width: int) -> tuple[int, ...]:
    """Add, one at a time, the group that adds the least to the counter sum."""
    cost = grid.diagonal().copy()
    taken = np.zeros(len(grid), dtype=bool)
    for _ in range(width):
        group = int(np.argmin(np.where(taken, np.iinfo(np.int64).max, cost)))
        taken[group] = True
        cost = cost + grid[group, :] + grid[:, group]
    return tuple(np.flatnonzero(taken).tolist())


def evening_tau(counters: Integers, blocks: tuple[int, ...], tau_low: int, tau_high: int) -> int:
    """The tau in [tau_low, tau_high] that leaves the counters with the least variance.

    The variance is quadratic in tau with its minimum at (mean of the other counters - mean of the chosen ones). When all blocks
    are chosen it does not change, and the largest tau is taken.
    """
    others = len(counters) - len(blocks)
    if others == 0:
        return tau_high
    chosen_sum = int(counters[list(blocks)].sum())
    best = (int(counters.sum()) - chosen_sum) / others - chosen_sum / len(blocks)
    return min(max(math.floor(best + 0.5), tau_low), tau_high)


def add_steps(counters: Integers, blocks: tuple[int, ...], tau: int) -> Integers:
    """The counters after `tau` local steps on these blocks."""
    after = counters.copy()
    after[list(blocks)] += tau
    return after
