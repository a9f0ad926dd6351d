"""A network for short texts: tokens, two convolutions over them, the largest of each channel, one output."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def build(width: int, max_width: int = 4, vocabulary: int = 257, classes: int = 1) -> nn.Module:
    """An embedding and two convolutions of 128 channels at full width over five tokens, one linear layer."""
    return TextCNN(max(1, round(128 / max_width)) * width, vocabulary, classes)


class TextCNN(nn.Module):
    """Reads tokens (batch, time) and scores every class."""

    def __init__(self, channels: int, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, channels)
        self.near = nn.Conv1d(channels, channels, 5, padding=2)
        self.far = nn.Conv1d(channels, channels, 5, padding=2)
        self.output = nn.Linear(channels, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = torch.relu(self.near(self.embedding(tokens).transpose(1, 2)))
        seen = torch.relu(self.far(nn.functional.max_pool1d(seen, 2)))
        scores: Tensor = self.output(seen.amax(dim=2))
        return scores
