"""Models: each file holds one `build(width) -> nn.Module` in plain PyTorch; `family` reads its shapes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heroes.models import char_rnn, cnn, digits_cnn, mlp, resnet, text_cnn, vit

SAMPLES: dict[str, Callable[[int], Tensor]] = {
    "digits_cnn": lambda batch: torch.zeros(batch, 1, 8, 8),
    "cnn": lambda batch: torch.zeros(batch, 3, 32, 32),
    "resnet18": lambda batch: torch.zeros(batch, 3, 144, 144),
    "char_rnn": lambda batch: torch.zeros(batch, 80, dtype=torch.int64),
    "vit": lambda batch: torch.zeros(batch, 3, 32, 32),
    "mlp": lambda batch: torch.zeros(batch, 20),
    "text_cnn": lambda batch: torch.zeros(batch, 256, dtype=torch.int64),
}
"""A batch of what each model was made for, to count on."""
MODELS: dict[str, Callable[..., nn.Module]] = {
    "digits_cnn": digits_cnn.build,
    "cnn": cnn.build,
    "resnet18": resnet.build,
    "char_rnn": char_rnn.build,
    "vit": vit.build,
    "mlp": mlp.build,
    "text_cnn": text_cnn.build,
}
