"""Turns stored images, uint8 (channels, height, width), into model inputs: flip, crop, normalise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class ImageTransform:
    """Normalises stored images; with a generator, flips half and crops each after padding.

    >>> batch = torch.full((2, 1, 4, 4), 255, dtype=torch.uint8)
    >>> ImageTransform(mean=(0.5,), std=(0.25,))(batch, None)[0, 0, 0]
    tensor([2., 2., 2., 2.])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool = False
    padding: int = 0

    def __call__(self, stored: Tensor, rng: np.random.Generator | None) -> Tensor:
        if rng is not None and (self.flip or self.padding):
            stored = augmented(stored, rng, self.flip, self.padding)
        mean, std = (torch.tensor(v, dtype=torch.float32).view(-1, 1, 1) for v in (self.mean, self.std))
        return stored.to(torch.float32).mul_(1 / (255 * std)).sub_(mean / std)


def augmented(images: Tensor, rng: np.random.Generator, flip: bool, padding: int) -> Tensor:
    """The images (N, C, H, W), each shifted by up to `padding` pixels either way and mirrored at random.

    All crops of a padded image are views of it, (N, C, 2p+1, 2p+1, H, W); one of them is copied for each
    image.
    """
    count, channels, height, width = images.shape
    top, left = rng.integers(0, 2 * padding + 1, (2, count))
    padded = np.zeros((count, channels, height + 2 * padding, width + 2 * padding), dtype=np.uint8)
    padded[:, :, padding : padding + height, padding : padding + width] = images.numpy()
    crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    chosen = crops[np.arange(count), :, top, left]
    if flip:
        mirrored = rng.integers(0, 2, count).astype(bool)
        chosen[mirrored] = chosen[mirrored][..., ::-1]
    return torch.from_numpy(chosen)
