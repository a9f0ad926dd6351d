"""Cutting slices out and laying them back, against a mean taken element by element."""

from __future__ import annotations

import itertools
import weakref
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from heroes.slices.cuts import Slice, cut_out, cut_shapes
from heroes.slices.overlays import overlay_mean

Case = tuple[dict[str, Tensor], list[dict[str, Slice]], torch.Generator]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Global tensors of zero to three axes, and cuts along neighbouring axes, in any index order."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shapes = draw(st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=3))
    whole = {f"t{n}": torch.randn(shape, generator=generator) for n, shape in enumerate(shapes)}
    cuts = []
    for _ in range(draw(st.integers(0, 4))):
        held = draw(st.lists(st.sampled_from(sorted(whole)), unique=True))
        cuts.append({f"local {name}": Slice(name, _axes(draw, whole[name])) for name in held})
    return whole, cuts, generator


def _axes(draw: st.DrawFn, tensor: Tensor) -> tuple[tuple[int, Tensor], ...]:
    first = draw(st.integers(0, tensor.dim()))
    last = draw(st.integers(first, tensor.dim()))
    return tuple(
        (axis, torch.tensor(draw(st.lists(st.integers(0, tensor.shape[axis] - 1), min_size=1, unique=True))))
        for axis in range(first, last)
    )


def element_means(whole, parts):
    """The definition: collect every holder's value of every element, and take the mean."""
    held = {name: defaultdict(list) for name in whole}
    for cut, tensors in parts:
        for name, piece in cut.items():
            kept = dict(piece.axes)
            places = [
                kept[a].tolist() if a in kept else range(n) for a, n in enumerate(whole[piece.source].shape)
            ]
            for at, value in zip(itertools.product(*places), tensors[name].reshape(-1).tolist(), strict=True):
                held[piece.source][at].append(value)
    means = {name: old.clone() for name, old in whole.items()}
    for name, values in held.items():
        for at, found in values.items():
            means[name][at] = float(np.mean(found))
    return means, held


def some_values(whole, cut, generator):
    return {name: torch.randn(shape, generator=generator) for name, shape in cut_shapes(whole, cut).items()}


@given(cases())
def test_laying_back_what_was_cut_out_changes_nothing(case):
    whole, cuts, _ = case
    after = overlay_mean(whole, [(cut, cut_out(whole, cut)) for cut in cuts])
    assert after.keys() == whole.keys()
    assert all(torch.equal(after[name], whole[name]) for name in whole)


@given(cases())
def test_every_element_is_the_mean_over_its_holders_and_keeps_its_value_without_any(case):
    whole, cuts, generator = case
    parts = [(cut, some_values(whole, cut, generator)) for cut in cuts]
    after = overlay_mean(whole, parts)
    means, held = element_means(whole, parts)
    for name, old in whole.items():
        torch.testing.assert_close(after[name], means[name])
        for at in itertools.product(*map(range, old.shape)):
            if not held[name][at]:
                assert after[name][at].item() == old[at].item()


@given(cases())
def test_a_cut_has_the_shapes_promised_and_the_elements_named(case):
    whole, cuts, _ = case
    for cut in cuts:
        parts = cut_out(whole, cut)
        assert {name: tuple(part.shape) for name, part in parts.items()} == cut_shapes(whole, cut)
        means, _ = element_means({name: torch.zeros_like(old) for name, old in whole.items()}, [(cut, parts)])
        for piece in cut.values():
            different = means[piece.source] != whole[piece.source]
            assert (means[piece.source][different] == 0).all()


@given(cases())
def test_the_global_tensors_are_not_changed_and_not_shared(case):
    whole, cuts, generator = case
    before = {name: tensor.clone() for name, tensor in whole.items()}
    for cut in cuts:
        for part in cut_out(whole, cut).values():
            part += 1.0
    overlay_mean(whole, [(cut, some_values(whole, cut, generator)) for cut in cuts])
    assert all(torch.equal(before[name], whole[name]) for name in whole)


def test_a_corner_along_two_axes_by_hand():
    whole = {"w": torch.zeros(3, 3)}
    corner = {"w": Slice("w", ((0, torch.tensor([0, 1])), (1, torch.tensor([0, 2]))))}
    everything = {"w": Slice("w")}
    row = {"w": Slice("w", ((0, torch.tensor([1])),))}
    after = overlay_mean(
        whole,
        [
            (everything, {"w": torch.ones(3, 3)}),
            (corner, {"w": torch.full((2, 2), 3.0)}),
            (row, {"w": torch.full((1, 3), 8.0)}),
        ],
    )
    assert after["w"].tolist() == [[2.0, 1.0, 2.0], [4.0, 4.5, 4.0], [1.0, 1.0, 1.0]]


def test_the_order_of_indices_is_the_order_of_the_slice():
    whole = {"w": torch.arange(4.0)}
    turned = {"w": Slice("w", ((0, torch.tensor([3, 0])),))}
    assert cut_out(whole, turned)["w"].tolist() == [3.0, 0.0]
    assert overlay_mean(whole, [(turned, {"w": torch.tensor([30.0, 10.0])})])["w"].tolist() == [
        10.0,
        1.0,
        2.0,
        30.0,
    ]


def test_a_tensor_without_axes_is_averaged_whole():
    after = overlay_mean(
        {"s": torch.tensor(5.0)}, [({"s": Slice("s")}, {"s": torch.tensor(v)}) for v in (1.0, 2.0)]
    )
    assert after["s"].shape == ()
    assert after["s"].item() == 1.5


def test_axes_apart_from_each_other_are_refused():
    cut = {"w": Slice("w", ((0, torch.tensor([0])), (2, torch.tensor([0]))))}
    with pytest.raises(ValueError, match="neighbours"):
        overlay_mean({"w": torch.zeros(2, 2, 2)}, [(cut, {"w": torch.zeros(1, 2, 1)})])


def test_many_small_values_are_summed_without_losing_them():
    values = [2.0**24, *[1.0] * 7]  # in single precision 2^24 + 1 is 2^24
    after = overlay_mean(
        {"w": torch.zeros(1)}, [({"w": Slice("w")}, {"w": torch.tensor([v])}) for v in values]
    )
    assert after["w"].item() == pytest.approx((2.0**24 + 7) / 8, rel=1e-7)
    assert after["w"].item() > 2.0**21


def test_parts_are_not_kept_while_the_next_ones_arrive():
    made: list[weakref.ref[Tensor]] = []

    def parts():
        for _ in range(10):
            assert sum(ref() is not None for ref in made) <= 1  # at most the one just added
            part = {"w": torch.ones(4)}
            made.append(weakref.ref(part["w"]))
            yield {"w": Slice("w")}, part
            del part

    assert overlay_mean({"w": torch.zeros(4)}, parts())["w"].tolist() == [1.0] * 4
    assert len(made) == 10
