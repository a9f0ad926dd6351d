"""What rounding left out is kept in global coordinates, as a value that nobody changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import ExchangeError
from heroes.slices.cuts import Slice
from heroes.slices.feedback import Feedback, Leftover


def cut_of(*indices):
    """Rows of w, and all of b, under names of the client's own."""
    return {"local w": Slice("w", ((0, torch.tensor(indices)),)), "local b": Slice("b")}


def test_a_later_cut_picks_up_what_it_covers():
    feedback = Feedback({"w": (4, 2), "b": (1,), "other": (1000,)})
    assert {name: t.tolist() for name, t in feedback.residuals({}, 5, cut_of(2)).items()} == {
        "local w": [[0, 0]],
        "local b": [0],
    }
    one = {"local w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "local b": torch.tensor([9.0])}
    first = feedback.keep({}, [Leftover(5, cut_of(2, 0), one)])
    assert feedback.residuals(first, 5, cut_of(0, 1))["local w"].tolist() == [[3.0, 4.0], [0.0, 0.0]]
    two = {"local w": torch.tensor([[5.0, 6.0], [7.0, 8.0]]), "local b": torch.tensor([0.5])}
    second = feedback.keep(first, [Leftover(5, cut_of(0, 1), two)])
    everything = {"w": Slice("w"), "b": Slice("b"), "other": Slice("other")}
    found = feedback.residuals(second, 5, everything)
    assert found["w"].tolist() == [[5.0, 6.0], [7.0, 8.0], [1.0, 2.0], [0.0, 0.0]]
    assert found["b"].tolist() == [0.5]
    assert not found["other"].any()
    assert list(second[5]) == ["w", "b"]  # what was never sent takes no memory
    assert not feedback.residuals(second, 6, everything)["w"].any()
    assert feedback.residuals(first, 5, everything)["b"].tolist() == [9.0]  # what was before has not changed


def test_residuals_handed_out_are_copies():
    feedback = Feedback({"w": (2, 2), "b": (1,)})
    mine = {"local w": torch.ones(1, 2), "local b": torch.ones(1)}
    kept = feedback.keep({}, [Leftover(1, cut_of(0), mine)])
    mine["local b"].zero_()
    feedback.residuals(kept, 1, cut_of(0))["local b"].zero_()
    assert feedback.residuals(kept, 1, cut_of(0))["local b"].tolist() == [1.0]
    feedback.residuals(kept, 2, cut_of(0))["local b"].add_(1.0)
    assert feedback.residuals(kept, 2, cut_of(0))["local b"].tolist() == [0.0]


def test_memory_is_bounded_by_forgetting_who_was_kept_longest_ago():
    feedback = Feedback({"w": (2, 2), "b": (1,)}, limit=2 * 20)
    left = {"local w": torch.ones(1, 2), "local b": torch.ones(1)}
    rounds = [feedback.keep({}, [Leftover(1, cut_of(0), left), Leftover(2, cut_of(0), left)])]
    for client in (1, 3):
        rounds.append(feedback.keep(rounds[-1], [Leftover(client, cut_of(0), left)]))
    assert [list(kept) for kept in rounds] == [[1, 2], [2, 1], [1, 3]]
    assert not feedback.residuals(rounds[-1], 2, cut_of(0))["local b"].any()
    together = [Leftover(client, cut_of(0), left) for client in (1, 2, 1, 3)]
    assert list(feedback.keep({}, together)) == [1, 3]
    with pytest.raises(ExchangeError, match="19 bytes, but the residuals of one client can take 20"):
        Feedback({"w": (2, 2), "b": (1,)}, limit=19)


@given(st.data())
def test_whatever_the_cuts_each_element_keeps_what_was_left_last(data):
    feedback, kept, expected = Feedback({"w": (5, 3), "b": ()}), {}, np.zeros((5, 3))
    for turn in range(data.draw(st.integers(1, 6))):
        rows = data.draw(st.lists(st.integers(0, 4), min_size=1, unique=True))
        columns = data.draw(st.lists(st.integers(0, 2), min_size=1, unique=True))
        cut = {"w": Slice("w", ((0, torch.tensor(rows)), (1, torch.tensor(columns)))), "b": Slice("b")}
        assert feedback.residuals(kept, 0, cut)["w"].tolist() == expected[np.ix_(rows, columns)].tolist()
        new = {"w": torch.full((len(rows), len(columns)), turn + 1.0), "b": torch.tensor(float(turn))}
        kept = feedback.keep(kept, [Leftover(0, cut, new)])
        expected[np.ix_(rows, columns)] = turn + 1.0
    assert kept[0]["w"].tolist() == expected.tolist()
    assert float(kept[0]["b"]) == turn
