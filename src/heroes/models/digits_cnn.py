"""A small convolutional network for 8x8 digits."""

from __future__ import annotations

from torch import nn

from heroes.models.norms import norm_layers
from heroes.models.starts import he


def build(width: int, classes: int = 10, norm: str = "group") -> nn.Module:
    """Three 3x3 convolutions of 8, 16 and 16 channels per width, average pooling, one linear output."""
    a, b = 8 * width, 16 * width

    def block(inputs: int, outputs: int, *pool: nn.Module) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
        return [convolution, *norm_layers(norm, width, outputs), *pool, nn.ReLU()]

    # the largest before the ReLU: the same function, for less
    convolved = [*block(1, a), *block(a, b, nn.MaxPool2d(2)), *block(b, b), nn.AvgPool2d(2)]
    return he(nn.Sequential(*convolved, nn.Flatten(), nn.Linear(b * 4, classes)))
