"""Flip, crop and normalise: by hand on small images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.data.images import ImageTransform, augmented


def test_normalised_by_hand():
    stored = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 2, 1, 1)
    out = ImageTransform(mean=(0.2, 0.5), std=(0.1, 0.25))(stored, None)
    assert out[:, 0, 0, 0].tolist() == pytest.approx([-2.0, 0.0, 8.0], abs=1e-5)
    assert out[:, 1, 0, 0].tolist() == pytest.approx([-2.0, -1.2, 2.0], abs=1e-5)


def test_without_a_generator_nothing_is_drawn_or_moved():
    stored = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    plain, varied = (
        ImageTransform((0.5,), (0.5,), flip=flip, padding=padding)
        for flip, padding in ((False, 0), (True, 4))
    )
    assert torch.equal(plain(stored, None), varied(stored, None))


@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 9),
)
def test_every_image_is_a_crop_of_its_padded_self_or_the_mirror_of_one(
    count, channels, side, padding, flip, seed
):
    images = torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, (count, channels, side, side + 1), dtype=np.uint8)
    )
    out = augmented(images, np.random.default_rng(seed), flip, padding)
    assert (out.shape, out.dtype) == (images.shape, torch.uint8)
    for before, after in zip(images, out, strict=True):
        padded = torch.nn.functional.pad(before, (padding,) * 4)
        crops = [
            padded[:, y : y + side, x : x + side + 1]
            for y in range(2 * padding + 1)
            for x in range(2 * padding + 1)
        ]
        assert any(torch.equal(after, c) or (flip and torch.equal(after, c.flip(2))) for c in crops)


def test_half_are_mirrored_all_moves_occur_and_the_seed_decides():
    images = torch.zeros(2000, 1, 3, 3, dtype=torch.uint8)
    images[:, 0, 1, 0] = 9
    flipped = augmented(images, np.random.default_rng(0), True, 0)
    assert 900 < int((flipped[:, 0, 1, 2] == 9).sum()) < 1100
    moved = augmented(images, np.random.default_rng(0), False, 1)
    assert {tuple(place) for place in (moved[:, 0] == 9).nonzero()[:, 1:].tolist()} == {
        (y, x) for y in range(3) for x in range(2)
    }
    assert torch.equal(moved, augmented(images, np.random.default_rng(0), False, 1))
    assert not torch.equal(moved, augmented(images, np.random.default_rng(1), False, 1))
