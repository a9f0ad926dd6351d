"""A small convolutional network for 8x8 digits."""

from __future__ import annotations

from torch import nn


def build(width: int, classes: int = 10, norm: str = "group") -> nn.Module:
    """Three 3x3 convolutions of 8, 16 and 16 channels per width, average pooling, one linear output."""
    a, b = 8 * width, 16 * width

    def block(inputs: int, outputs: int, *pool: nn.Module) -> list[nn.Module]:
        normalise = [nn.GroupNorm(width, outputs)] if norm == "group" else []
        return [nn.Conv2d(inputs, outputs, 3, padding=1), *normalise, *pool, nn.ReLU()]

    return nn.Sequential(
        *block(1, a),
        *block(a, b, nn.MaxPool2d(2)),  # before the ReLU: the same function, for less
        *block(b, b),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(b * 4, classes),
    )
