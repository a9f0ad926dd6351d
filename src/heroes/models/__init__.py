"""Models: each file holds one `build(width) -> nn.Module` in plain PyTorch; `family` reads its shapes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from heroes.models import digits_cnn

MODELS: dict[str, Callable[..., nn.Module]] = {"digits_cnn": digits_cnn.build}
