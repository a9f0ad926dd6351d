"""The paper's convolutional network for 32x32 images: three 3x3 convolutions and one linear output."""

from __future__ import annotations

from torch import nn

from heroes.models.norms import norm_layers
from heroes.models.starts import he


def build(
    width: int, max_width: int = 4, classes: int = 10, channels: int = 3, norm: str = "group"
) -> nn.Module:
    """Convolutions of 64, 128 and 128 channels at full width, pooled to 2x2, and one linear layer."""
    sizes = [_per_width(full, max_width) * width for full in (64, 128, 128)]
    layers: list[nn.Module] = []
    for inputs, outputs in zip([channels, *sizes[:-1]], sizes, strict=True):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), *norm_layers(norm, width, outputs)]
        layers += [nn.MaxPool2d(2), nn.ReLU()]  # the same function as the other way round, for less
    output = nn.Linear(sizes[-1] * 4, classes)
    return he(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), output))


def _per_width(full: int, max_width: int) -> int:
    """Channels of one group, so that the full width comes as near as it can to the paper's."""
    return max(1, round(full / max_width))
