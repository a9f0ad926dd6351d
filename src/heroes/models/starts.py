"""How the weights of built-in models start."""

from __future__ import annotations

from torch import nn


def he(module: nn.Module) -> nn.Module:
    """Draw all linear layers and convolutions but the last anew, as He has it for ReLU; returns the module.

    The last one makes the outputs, and stays as torch has it, like norms, embeddings, attention, recurrent
    layers and all biases.
    """
    drawn = [layer for layer in module.modules() if type(layer) in (nn.Linear, nn.Conv2d)]
    for layer in drawn[:-1]:
        nn.init.kaiming_normal_(layer.get_parameter("weight"), nonlinearity="relu")
    return module
