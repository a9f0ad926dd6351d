"""Which blocks a client gets, and the tau that evens out the counters."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heroes.messages import Selection
from heroes.slices.blocks import add_steps, choose_blocks, grid_selection
from heroes.slices.blocks import evening_tau as evening_tau_of_sums

COUNTERS = st.integers(1, 4).flatmap(
    lambda p: st.lists(st.integers(0, 200), min_size=p * p, max_size=p * p).map(
        lambda c: np.array(c, dtype=np.int64)
    )
)


def choose(choice: str, c: np.ndarray, width: int) -> Selection:
    """What the first client is given."""
    return next(choose_blocks(choice, c, [(width, 1, 1)]))[0]


def evening_tau(c: np.ndarray, blocks: tuple[int, ...], low: int, high: int) -> int:
    return evening_tau_of_sums(int(c[list(blocks)].sum()), len(blocks), int(c.sum()), len(c), low, high)


def counters(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, dtype=np.int64).reshape(-1)


def test_grid_selection_joins_every_group_to_every_group() -> None:
    assert grid_selection((0, 2), 3) == Selection(2, (0, 2), (0, 2, 6, 8))


def test_free_takes_the_smallest_counters_in_index_order() -> None:
    chosen = choose("free", counters((9, 1, 9), (9, 2, 3), (0, 9, 9)), 2)
    assert chosen.pieces == (1, 4, 5, 6)


def test_free_takes_the_groups_whose_rows_and_columns_are_least_trained() -> None:
    # rows 20, 6, 5 and columns 4, 6, 21: group 1 has the least of both together
    assert choose("free", counters((2, 4, 14), (1, 1, 4), (1, 1, 3)), 1).groups == (1,)


def test_free_breaks_ties_by_index() -> None:
    assert choose("free", counters((1, 1), (1, 1)), 1) == Selection(1, (0,), (0,))
    assert choose("free", counters((2, 1), (1, 1)), 1).pieces == (1,)


def test_grid_takes_the_groups_whose_blocks_have_the_smallest_sum() -> None:
    # {0,1}: 0+5+5+0 = 10, {0,2}: 0+1+2+4 = 7, {1,2}: 0+9+9+4 = 22
    assert choose("grid", counters((0, 5, 1), (5, 0, 9), (2, 9, 4)), 2) == Selection(2, (0, 2), (0, 2, 6, 8))


def test_grid_of_width_one_takes_the_least_diagonal_block() -> None:
    assert choose("grid", counters((3, 0, 0), (0, 2, 0), (0, 0, 1)), 1) == Selection(1, (2,), (8,))


def test_grid_breaks_ties_by_index() -> None:
    assert choose("grid", counters((7, 7, 7), (7, 7, 7), (7, 7, 7)), 2).groups == (0, 1)
    assert choose("grid", counters((5, 0, 0), (0, 4, 0), (0, 0, 4)), 1).groups == (1,)


def test_nested_always_takes_the_leading_groups() -> None:
    assert choose("nested", counters((9, 9, 9), (9, 9, 9), (9, 9, 0)), 2) == Selection(
        2, (0, 1), (0, 1, 3, 4)
    )


@pytest.mark.parametrize("choice", ["grid", "free", "nested"])
def test_a_family_of_one_width_has_one_choice(choice: str) -> None:
    assert choose(choice, np.array([41]), 1) == Selection(1, (0,), (0,))


@pytest.mark.parametrize("choice", ["grid", "free", "nested"])
@given(COUNTERS)
def test_full_width_is_everything_in_order(choice: str, c: np.ndarray) -> None:
    p = int(len(c) ** 0.5)
    assert choose(choice, c, p) == Selection(p, tuple(range(p)), tuple(range(p * p)))


@given(COUNTERS, st.data())
def test_grid_has_the_least_sum_of_all_grids(c: np.ndarray, data: st.DataObject) -> None:
    p = int(len(c) ** 0.5)
    width = data.draw(st.integers(1, p))
    sums = {s: c[list(grid_selection(s, p).pieces)].sum() for s in itertools.combinations(range(p), width)}
    first_least = min(sums, key=lambda s: (sums[s], s))
    assert choose("grid", c, width) == grid_selection(first_least, p)


@given(COUNTERS, st.data())
def test_free_leaves_no_smaller_counter_behind(c: np.ndarray, data: st.DataObject) -> None:
    p = int(len(c) ** 0.5)
    width = data.draw(st.integers(1, p))
    chosen = choose("free", c, width)
    left = np.delete(c, list(chosen.pieces))
    assert len(set(chosen.pieces)) == width**2
    assert list(chosen.pieces) == sorted(chosen.pieces)
    assert len(set(chosen.groups)) == width
    assert left.size == 0 or left.min() >= c[list(chosen.pieces)].max()


def wide_grid(diagonal: list[int], pairs: dict[tuple[int, int], int]) -> np.ndarray:
    grid = np.full((9, 9), 10, dtype=np.int64)
    np.fill_diagonal(grid, diagonal)
    for (a, b), value in pairs.items():
        grid[a, b] = value
    return grid.reshape(-1)


def test_above_eight_groups_the_choice_is_greedy() -> None:
    # 4 has the least diagonal. Then 7 adds 5 + 1 + 1 = 7, against 5 + 0 + 10 for 5 and 3. Then 2 adds 5 + 10
    # + 0 + 10 + 0 = 25.
    pairs = {(4, 7): 1, (7, 4): 1, (4, 5): 0, (3, 4): 0, (2, 4): 0, (7, 2): 0}
    c = wide_grid([5, 5, 5, 5, 3, 5, 5, 5, 5], pairs)
    assert choose("grid", c, 1).groups == (4,)
    assert choose("grid", c, 2).groups == (4, 7)
    assert choose("grid", c, 3) == grid_selection((2, 4, 7), 9)


def test_the_greedy_choice_keeps_its_first_group_even_where_another_pair_is_better() -> None:
    # {0, 1} has 10, greedy's {0, 4} has 28
    c = wide_grid([5, 5, 5, 5, 3, 5, 5, 5, 5], {(0, 1): 0, (1, 0): 0})
    assert choose("grid", c, 2).groups == (0, 4)


def test_the_greedy_choice_breaks_ties_by_index() -> None:
    assert choose("grid", np.zeros(81, dtype=np.int64), 3).groups == (0, 1, 2)


def variance_after(c: np.ndarray, blocks: tuple[int, ...], tau: int) -> float:
    return float(np.var(add_steps(c, blocks, tau).astype(np.float64)))


@given(COUNTERS, st.data())
def test_evening_tau_has_the_least_variance_in_its_interval(c: np.ndarray, data: st.DataObject) -> None:
    blocks = tuple(data.draw(st.sets(st.integers(0, len(c) - 1), min_size=1)))
    low = data.draw(st.integers(1, 60))
    high = low + data.draw(st.integers(0, 60))
    tau = evening_tau(c, blocks, low, high)
    assert low <= tau <= high
    least = min(variance_after(c, blocks, t) for t in range(low, high + 1))
    assert variance_after(c, blocks, tau) == pytest.approx(least, rel=1e-9, abs=1e-9)


def test_evening_tau_by_hand() -> None:
    c = counters((0, 10), (12, 14))  # the others' mean is 12, the chosen block's 0
    assert evening_tau(c, (0,), 1, 50) == 12
    assert evening_tau(c + counters((0, 0), (0, 2)), (0,), 1, 50) == 13  # 12.67, to the nearest
    assert evening_tau(c + counters((0, 0), (0, 1)), (0,), 1, 50) == 12  # 12.33
    assert evening_tau(c, (0,), 1, 5) == 5
    assert evening_tau(c, (0,), 20, 50) == 20
    assert evening_tau(c, (3,), 2, 50) == 2  # already ahead: as little as allowed


def test_with_all_blocks_chosen_tau_is_the_largest() -> None:
    assert evening_tau(counters((1, 2), (3, 4)), (0, 1, 2, 3), 3, 9) == 9


def test_add_steps_counts_the_blocks_and_leaves_its_argument_alone() -> None:
    before = counters((1, 2), (3, 4))
    assert add_steps(before, (0, 3), 5).tolist() == [6, 2, 3, 9]
    assert before.tolist() == [1, 2, 3, 4]


def plainly_chosen(choice: str, c: np.ndarray, width: int) -> Selection:
    """The definition, step by step and slowly."""
    p = int(len(c) ** 0.5)

    def total(groups: tuple[int, ...]) -> int:
        return int(sum(c[block] for block in grid_selection(tuple(sorted(groups)), p).pieces))

    if choice == "nested" or width == p:
        return grid_selection(tuple(range(width)), p)
    if choice == "grid" and p <= 8:
        return grid_selection(min(itertools.combinations(range(p), width), key=total), p)
    if choice == "grid":
        groups: tuple[int, ...] = ()
        for _ in range(width):
            groups += (min((g for g in range(p) if g not in groups), key=lambda g: total((*groups, g))),)
        return grid_selection(tuple(sorted(groups)), p)
    blocks = sorted(sorted(range(p * p), key=lambda n: (c[n], n))[: width**2])
    trained = [sum(c[g * p : g * p + p]) + sum(c[g::p]) for g in range(p)]
    return Selection(
        width, tuple(sorted(sorted(range(p), key=lambda g: (trained[g], g))[:width])), tuple(blocks)
    )


@pytest.mark.parametrize("choice", ["grid", "free", "nested"])
@pytest.mark.parametrize("p", [1, 2, 4, 6, 9, 16])
@pytest.mark.parametrize("spread", [1, 3, 500])  # all equal, many ties, hardly any
def test_serving_many_in_a_row_is_choosing_evening_and_adding_one_by_one(
    choice: str, p: int, spread: int
) -> None:
    rng = np.random.default_rng(spread)
    c = rng.integers(0, spread, p * p)
    before = c.tolist()
    low = rng.integers(1, 9, 25)
    wishes = list(
        zip(
            rng.integers(1, p + 1, 25).tolist(),
            low.tolist(),
            (low + rng.integers(0, 9, 25)).tolist(),
            strict=True,
        )
    )
    served = list(choose_blocks(choice, c, wishes))
    assert c.tolist() == before  # nobody's counters were touched
    for (width, lowest, highest), (selection, tau) in zip(wishes, served, strict=True):
        assert selection == plainly_chosen(choice, c, width)
        assert tau == evening_tau(c, selection.pieces, lowest, highest)
        c = add_steps(c, selection.pieces, tau)
