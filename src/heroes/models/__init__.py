"""Models: each file holds one `build(width) -> nn.Module` in plain PyTorch; `family` reads its shapes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from heroes.models import char_rnn, cnn, digits_cnn, resnet, vit

MODELS: dict[str, Callable[..., nn.Module]] = {
    "digits_cnn": digits_cnn.build,
    "cnn": cnn.build,
    "resnet18": resnet.build,
    "char_rnn": char_rnn.build,
    "vit": vit.build,
}
