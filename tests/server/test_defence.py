"""Clipped, refused or outvoted: what a few wrong updates can do to the model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.messages import Update
from heroes.server.defence import Defence, clipped, norm, outliers, overlay, overlay_median, overlay_trimmed
from heroes.slices.cuts import Slice
from heroes.slices.overlays import holders, overlay_mean

WHOLE = {"w": torch.zeros(4, 2), "b": torch.full((3,), 5.0)}
ALL = {"w": Slice("w"), "b": Slice("b")}


def rows(*indices):
    """A cut of some rows of w."""
    return {"w": Slice("w", ((0, torch.tensor(indices)),))}


def sent(client, tensors):
    return Update(client, 1, tensors, 10, 0.5)


def test_the_median_is_over_the_clients_that_hold_a_value():
    parts = [
        (rows(0, 1), {"w": torch.tensor([[1.0, 2.0], [1.0, 1.0]])}),
        (rows(0, 2), {"w": torch.tensor([[9.0, 4.0], [7.0, 7.0]])}),
        (rows(0, 1), {"w": torch.tensor([[2.0, 1e9], [3.0, 5.0]])}),
    ]
    after = overlay_median(WHOLE, parts)
    assert after["w"].tolist() == [
        [2.0, 4.0],
        [2.0, 3.0],
        [7.0, 7.0],
        [0.0, 0.0],
    ]  # three, two, one and no holder
    assert after["b"] is WHOLE["b"]


def test_the_trimmed_mean_leaves_out_both_ends_of_those_that_hold_a_value():
    values = [-1e9, 1.0, 2.0, 6.0, 1e9]
    parts = [(rows(0), {"w": torch.full((1, 2), value)}) for value in values] + [
        (rows(1), {"w": torch.full((1, 2), 8.0)})
    ]
    after = overlay_trimmed(WHOLE, parts, trim=0.2)
    assert after["w"].tolist() == [[3.0, 3.0], [8.0, 8.0], [0.0, 0.0], [0.0, 0.0]]


@given(st.integers(0, 2**20), st.integers(1, 7))
def test_against_numpy(seed, count):
    rng = np.random.default_rng(seed)
    cuts = [np.sort(rng.choice(4, rng.integers(1, 5), replace=False)) for _ in range(count)]
    values = [rng.normal(size=(len(cut), 2)).astype(np.float32) for cut in cuts]
    parts = [(rows(*cut.tolist()), {"w": torch.from_numpy(v)}) for cut, v in zip(cuts, values, strict=True)]
    median, trimmed = overlay_median(WHOLE, parts)["w"], overlay_trimmed(WHOLE, parts, trim=0.3)["w"]
    counts = holders(WHOLE, [cut for cut, _ in parts])["w"]
    for row in range(4):
        held = np.array([v[list(cut).index(row)] for cut, v in zip(cuts, values, strict=True) if row in cut])
        assert float(counts[row].max()) == len(held)
        if len(held):
            np.testing.assert_allclose(median[row].numpy(), np.median(held, axis=0), rtol=1e-6)
            out = int(len(held) * 0.3)
            np.testing.assert_allclose(
                trimmed[row].numpy(),
                np.sort(held, axis=0)[out : len(held) - out].mean(axis=0),
                rtol=1e-5,
                atol=1e-7,
            )
        else:
            assert median[row].tolist() == trimmed[row].tolist() == [0.0, 0.0]


def test_without_trimming_it_is_the_mean():
    parts = [(ALL, {"w": torch.randn(4, 2), "b": torch.randn(3)}) for _ in range(5)]
    for name, value in overlay("trimmed_mean", 0.0)(WHOLE, parts).items():
        torch.testing.assert_close(value, overlay("mean", 0.2)(WHOLE, parts)[name])
    assert overlay("mean", 0.2) is overlay_mean
    assert overlay("median", 0.2) is overlay_median


def test_a_long_change_is_shortened_and_a_short_one_left_alone():
    base = {"w": torch.ones(4, 2), "b": torch.zeros(3)}
    far = sent(1, {"w": torch.ones(4, 2) + 3.0, "b": torch.full((3,), 4.0)})
    length = math.sqrt(8 * 9 + 3 * 16)
    short = clipped(far, base, 2.0)
    assert norm({name: t - base[name] for name, t in short.tensors.items()}) == pytest.approx(2.0, rel=1e-6)
    assert short.tensors["b"].tolist() == pytest.approx([4.0 * 2 / length] * 3)
    assert clipped(far, base, length + 1) is far


@pytest.fixture
def crowd(world):
    """Nine honest clients that move everything by about one, as answers."""
    generator = torch.Generator().manual_seed(0)
    return [
        (
            world.assignment(client),
            sent(
                client,
                {n: t + 1.0 + 0.5 * torch.randn(t.shape, generator=generator) for n, t in WHOLE.items()},
            ),
        )
        for client in range(9)
    ]


def hostile(answer, change):
    assignment, update = answer
    return assignment, replace(
        update, tensors={n: WHOLE[n] + change(t - WHOLE[n]) for n, t in update.tensors.items()}
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda move: 10 * move, "times as large"),
        (lambda move: -move, "points away"),
        (lambda move: -10 * move, "times as large"),
        (lambda move: -0.1 * move, "points away"),
    ],
)
def test_the_guard_refuses_what_the_others_speak_against_and_nobody_else(crowd, change, said):
    crowd[3], crowd[7] = hostile(crowd[3], change), hostile(crowd[7], change)
    found = dict(outliers(crowd, WHOLE, lambda _: ALL, 3.0))
    assert set(found) == {3, 7}
    assert all(said in reason for reason in found.values())


def test_the_guard_refuses_nobody_in_an_honest_crowd(crowd):
    assert dict(outliers(crowd, WHOLE, lambda _: ALL, 3.0)) == {}


def test_two_clients_cannot_outvote_each_other(crowd):
    pair = [crowd[0], hostile(crowd[1], lambda move: -100 * move)]
    assert dict(outliers(pair, WHOLE, lambda _: ALL, 3.0)) == {}


def test_clients_that_do_not_move_are_no_outliers(world):
    still = [(world.assignment(c), sent(c, dict(WHOLE))) for c in range(4)]
    assert dict(outliers(still, WHOLE, lambda _: ALL, 3.0)) == {}


def test_the_defence_tells_whom_it_refuses_and_clips_the_others(crowd):
    crowd[3] = hostile(crowd[3], lambda move: 100 * move)
    refused = []

    def refuse(client, reason, cause):
        refused.append((client, cause))

    kept = list(Defence("auto", guard=True).screen(crowd, WHOLE, lambda _: ALL, refuse))
    assert refused == [(3, "outlier")]
    honest = [norm_of(update) for assignment, update in crowd if assignment.client != 3]
    middle = sum(sorted(honest)[3:5]) / 2
    assert [norm_of(update) for _, update in kept] == pytest.approx(
        [min(size, middle) for size in honest], rel=1e-5
    )


def norm_of(update):
    return norm({n: t - WHOLE[n] for n, t in update.tensors.items()})


def test_without_a_defence_updates_pass_one_at_a_time(crowd):
    asked = []

    def arriving():
        for answer in crowd:
            asked.append(answer[0].client)
            yield answer

    passing = Defence(clip=1.0).screen(arriving(), WHOLE, lambda _: ALL, lambda *_: None)
    next(passing)
    assert asked == [0]
    assert [u for _, u in Defence().screen(crowd, WHOLE, lambda _: ALL, lambda *_: None)] == [
        u for _, u in crowd
    ]
