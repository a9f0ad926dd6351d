"""FedRolex: a window of channels that rolls, so that in the end every channel is trained by everyone."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from heroes.messages import Selection
from heroes.slices.cuts import cut_out


def axes(strategy, width, start):
    cut = strategy.cut(Selection(width, pieces=(start,)))
    return {name: [indices.tolist() for _, indices in piece.axes] for name, piece in cut.items()}


def test_the_window_rolls_in_all_layers_alike_and_wraps(world):
    strategy = world.strategy("fedrolex")  # layers of 9 and 6 channels; 9 = 3 groups of 3, 6 = 3 groups of 2
    found = axes(strategy, 2, 0)
    assert found["0.weight"] == [[0, 1, 2, 3, 4, 5]]
    assert found["2.weight"] == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    later = axes(strategy, 2, 2)
    assert later["0.weight"] == [[6, 7, 8, 0, 1, 2]]
    assert later["2.weight"] == [[4, 5, 0, 1], [6, 7, 8, 0, 1, 2]]
    assert later["4.weight"] == [[4, 5, 0, 1]]
    assert later["4.bias"] == []


def test_it_rolls_by_one_channel_of_the_narrowest_layer(world):
    def build(width):
        return nn.Sequential(
            nn.Linear(4, 4 * width), nn.Linear(4 * width, 2 * width), nn.Linear(2 * width, 3)
        )

    strategy = world.strategy("fedrolex", family=world.family(build=build))
    assert axes(strategy, 1, 1)["1.weight"] == [[1, 2], [2, 3, 4, 5]]
    assert axes(strategy, 1, 5)["1.weight"] == [[5, 0], [10, 11, 0, 1]]


def test_a_round_selects_its_own_window_and_all_clients_the_same(world):
    strategy = world.strategy("fedrolex")
    plan = strategy.assign(replace(strategy.begin(0), round=4), world.cohort([4e8, 1e8, 2e8]))
    assert [a.selection for a in plan.assignments] == [Selection(width, pieces=(4,)) for width in (3, 1, 2)]
    assert strategy.selection(2) == Selection(2, pieces=(0,))  # what is served


def test_unlike_leading_channels_a_narrow_client_alone_trains_everything(world):
    touched = {}
    for name in ("fedrolex", "heterofl"):
        strategy = world.strategy(name)
        state = strategy.begin(0)
        start = copy.deepcopy(state.tensors)
        for _ in range(3):
            plan = strategy.assign(state, world.cohort([1e6, 1e6]))
            assert {a.selection.width for a in plan.assignments} == {1}
            state, _ = strategy.aggregate(state, plan, world.answers(plan, strategy, state, [7.0, 7.0]))
        touched[name] = [bool((state.tensors[key] != start[key]).all()) for key in ("0.weight", "4.weight")]
    assert touched == {"fedrolex": [True, True], "heterofl": [False, False]}


def test_elements_are_the_mean_over_those_whose_window_holds_them(world):
    strategy = world.strategy("fedrolex")
    state = replace(strategy.begin(0), round=2)
    plan = strategy.assign(state, world.cohort([4e8, 1e8]))
    assert [a.selection.width for a in plan.assignments] == [3, 1]
    after, _ = strategy.aggregate(state, plan, world.answers(plan, strategy, state, [1.0, 3.0]))
    rows = after.tensors["0.weight"][:, 0].tolist()
    assert rows == [1.0] * 6 + [2.0] * 3  # the window of width 1 is at 6, 7, 8
    sent = cut_out(after.tensors, strategy.cut(Selection(1, pieces=(2,))))
    assert torch.equal(sent["0.weight"], torch.full((3, 4), 2.0))
