"""A small vision transformer: shows that composition holds for attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heroes.models.starts import he


def build(
    width: int, max_width: int = 4, classes: int = 10, image: int = 32, patch: int = 4, depth: int = 4
) -> nn.Module:
    """Patches, `depth` encoder layers of 256 units and 8 heads at full width, mean pooling, linear."""
    heads = max(1, round(8 / max_width)) * width
    return he(ViT(32 * heads, heads, classes, image, patch, depth))


class ViT(nn.Module):
    """Patch embedding, position embedding, transformer encoder, mean over patches, linear output."""

    def __init__(self, units: int, heads: int, classes: int, image: int, patch: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, units, patch, stride=patch)
        self.positions = nn.Parameter(torch.randn((image // patch) ** 2, units) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                units, heads, 2 * units, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(units)
        self.output = nn.Linear(units, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.output(self.norm(x).mean(dim=1))
        return scores
