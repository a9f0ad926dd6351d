"""ResNet-18: a stem and four stages of two basic blocks, normalised per channel group by default."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from heroes.models.norms import norm_layers
from heroes.models.starts import he

STAGES = (64, 128, 256, 512)


def build(
    width: int, max_width: int = 4, classes: int = 100, norm: str = "group", small_images: bool = False
) -> nn.Module:
    """ResNet-18; `small_images` has a 3x3 stem without pooling, for images below about 100 pixels."""
    sizes = [max(1, round(full / max_width)) * width for full in STAGES]
    return he(ResNet18(sizes, width, classes, norm, small_images))


class ResNet18(nn.Module):
    """Stem, stages, average pooling, one linear output."""

    def __init__(self, sizes: list[int], groups: int, classes: int, norm: str, small_images: bool) -> None:
        super().__init__()
        if small_images:
            stem: list[nn.Module] = [
                nn.Conv2d(3, sizes[0], 3, padding=1, bias=False),
                _norm(norm, groups, sizes[0]),
                nn.ReLU(),
            ]
        else:
            stem = [
                nn.Conv2d(3, sizes[0], 7, stride=2, padding=3, bias=False),
                _norm(norm, groups, sizes[0]),
                nn.MaxPool2d(3, stride=2, padding=1),  # before the ReLU: the same function, for less
                nn.ReLU(),
            ]
        self.stem = nn.Sequential(*stem)
        blocks: list[nn.Module] = []
        for stage, (inputs, outputs) in enumerate(zip([sizes[0], *sizes[:-1]], sizes, strict=True)):
            blocks.append(Block(inputs, outputs, 1 if stage == 0 else 2, groups, norm))
            blocks.append(Block(outputs, outputs, 1, groups, norm))
        self.stages = nn.Sequential(*blocks)
        self.output = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        out: Tensor = self.output(x.mean(dim=(2, 3)))
        return out


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int, norm: str) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = _norm(norm, groups, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = _norm(norm, groups, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(norm, groups, outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def _norm(norm: str, groups: int, channels: int) -> nn.Module:
    return next(iter(norm_layers(norm, groups, channels)), nn.Identity())
