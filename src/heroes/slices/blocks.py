"""Which blocks a client gets, and how many local steps keep all blocks evenly trained.

The global coefficient of every layer has P*P blocks; block a*P + b joins input group a to output group b. A
counter per block says how many local steps it has received. Plain numbers only.

>>> list(choose_blocks("grid", np.array([9, 9, 9, 0]), [(1, 2, 5)]))
[(Selection(width=1, groups=(1,), pieces=(3,)), 5)]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from heroes.messages import Integers, Selection

_ALL_SUBSETS_UP_TO = 8  # wider grids choose their groups greedily
_TAKEN = 2**62  # no sum of counters comes near
Wish = tuple[int, int, int]  # a client's width, and the fewest and the most steps it may do


def grid_selection(groups: tuple[int, ...], max_width: int) -> Selection:
    """The blocks that join the given groups to each other."""
    blocks = tuple(a * max_width + b for a in groups for b in groups)
    return Selection(len(groups), groups, blocks)


def choose_blocks(
    choice: str, counters: Integers, clients: Iterable[Wish]
) -> Iterator[tuple[Selection, int]]:
    """Clients in order: the least trained blocks of its width, then the tau that evens the counters out.

    What one client is given counts for those after it.
    """
    if choice == "free":
        return _choose_free(counters, clients)
    max_width = math.isqrt(len(counters))
    if choice == "grid" and max_width > _ALL_SUBSETS_UP_TO:
        return _choose_greedily(counters.reshape(max_width, max_width), clients)
    return _choose_listed(
        _every_grid(max_width) if choice == "grid" else _leading_grids(max_width), counters, clients
    )


@dataclass(frozen=True)
class _Grids:
    """Selections to choose from, narrow ones first, the blocks of each (0/1), and how many two share."""

    selections: tuple[Selection, ...]
    of_width: tuple[slice, ...]
    membership: Integers
    overlap: Integers

    @staticmethod
    def of(selections: list[Selection], max_width: int) -> _Grids:
        membership = np.zeros((len(selections), max_width**2), dtype=np.int64)
        for row, selection in enumerate(selections):
            membership[row, list(selection.pieces)] = 1
        starts = np.searchsorted([s.width for s in selections], range(max_width + 2)).tolist()
        of_width = tuple(itertools.starmap(slice, itertools.pairwise(starts)))
        return _Grids(tuple(selections), of_width, membership, membership @ membership.T)


@lru_cache(maxsize=64)
def _every_grid(max_width: int) -> _Grids:
    subsets = [
        s for width in range(1, max_width + 1) for s in itertools.combinations(range(max_width), width)
    ]
    return _Grids.of([grid_selection(groups, max_width) for groups in subsets], max_width)


@lru_cache(maxsize=64)
def _leading_grids(max_width: int) -> _Grids:
    return _Grids.of(
        [grid_selection(tuple(range(width)), max_width) for width in range(1, max_width + 1)], max_width
    )


def _choose_listed(
    grids: _Grids, counters: Integers, clients: Iterable[Wish]
) -> Iterator[tuple[Selection, int]]:
    """The grid with the smallest counter sum, the first of equals. Sums must be up to date."""
    sums = grids.membership @ counters
    for width, low, high in clients:
        place = grids.of_width[width]
        n = place.start + int(sums[place].argmin())
        tau = evening_tau(int(sums[n]), width**2, int(sums[-1]), len(counters), low, high)
        sums += tau * grids.overlap[n]
        yield grids.selections[n], tau


def _choose_greedily(grid: Integers, clients: Iterable[Wish]) -> Iterator[tuple[Selection, int]]:
    """Add, one at a time, the group that adds the least to the counter sum."""
    max_width, total = len(grid), int(grid.sum())
    pairs = grid + grid.T  # what two groups add when they meet; a group alone adds half of its own entry
    rows, flat, own = list(pairs), pairs.reshape(-1), pairs.diagonal()  # the same memory
    numbers = np.arange(max_width**2).reshape(max_width, max_width)
    for width, low, high in clients:
        groups, chosen = (
            (list(range(max_width)), total) if width == max_width else _greedy_groups(own >> 1, rows, width)
        )
        where = np.array(groups)
        blocks = numbers.take(where, 0).take(where, 1).reshape(-1)
        tau = evening_tau(chosen, width**2, total, max_width**2, low, high)
        flat[blocks] += 2 * tau
        total += tau * width**2
        yield Selection(width, tuple(groups), tuple(blocks.tolist())), tau


def _greedy_groups(cost: Integers, rows: list[Integers], width: int) -> tuple[list[int], int]:
    """The groups in order, and the counter sum of their grid."""
    groups, chosen = [], 0
    for _ in range(width):
        group = int(cost.argmin())
        chosen += cost.item(group)
        cost += rows[group]
        cost[group] = _TAKEN
        groups.append(group)
    return sorted(groups), chosen


def _choose_free(counters: Integers, clients: Iterable[Wish]) -> Iterator[tuple[Selection, int]]:
    """The width*width smallest counters, wherever they are, and the least trained rows and columns."""
    counters, max_width = counters.copy(), math.isqrt(len(counters))
    grid = counters.reshape(max_width, max_width)  # the same memory
    for width, low, high in clients:
        blocks = np.sort(counters.argsort(kind="stable")[: width**2])
        groups = np.sort((grid.sum(axis=0) + grid.sum(axis=1)).argsort(kind="stable")[:width])
        tau = evening_tau(
            int(counters[blocks].sum()), len(blocks), int(counters.sum()), len(counters), low, high
        )
        counters[blocks] += tau
        yield Selection(width, tuple(groups.tolist()), tuple(blocks.tolist())), tau


def evening_tau(chosen: int, blocks: int, total: int, all_blocks: int, tau_low: int, tau_high: int) -> int:
    """The tau in [tau_low, tau_high] that leaves the counters with the least variance.

    The variance is quadratic in tau with its minimum at (mean of the other counters - mean of the chosen
    ones). If all blocks are chosen it does not change, and the largest tau is taken.
    """
    if blocks == all_blocks:
        return tau_high
    best = (total - chosen) / (all_blocks - blocks) - chosen / blocks
    return min(max(math.floor(best + 0.5), tau_low), tau_high)


def add_steps(counters: Integers, blocks: tuple[int, ...], tau: int) -> Integers:
    """The counters after `tau` local steps on these blocks."""
    after = counters.copy()
    after[list(blocks)] += tau
    return after
