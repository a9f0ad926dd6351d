"""A network for tables: two hidden layers and one linear output."""

from __future__ import annotations

from torch import nn

from heroes.models.norms import norm_layers
from heroes.models.starts import he


def build(
    width: int, max_width: int = 4, features: int = 20, classes: int = 1, norm: str = "group"
) -> nn.Module:
    """Two hidden layers of 128 units at full width, and an output for each class, or one for a number."""
    hidden = max(1, round(128 / max_width)) * width
    layers: list[nn.Module] = []
    for inputs in (features, hidden):
        normalised = norm_layers(norm, width, hidden, images=False)
        layers += [nn.Linear(inputs, hidden), *normalised, nn.ReLU()]
    return he(nn.Sequential(*layers, nn.Linear(hidden, classes)))
