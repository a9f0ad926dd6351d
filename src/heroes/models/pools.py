"""Pooling before the activation: the same function, forward and backward, for less.

A ReLU keeps the order of numbers, so behind a max-pool it does what it did before it, to the bit, and on a
quarter of the numbers where windows are 2 by 2.
"""

from __future__ import annotations

from itertools import pairwise

from torch import nn

_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def pool_first(module: nn.Module) -> None:
    """Let every ReLU that stands just before a max-pool in a plain `nn.Sequential` come after it.

    Only where nobody could see a difference: the root and what lies in it are plain sequences, neither of the
    two has a hook, and the pool gives no indices. A class of one's own may look at what is between them.

    >>> net = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2))
    >>> pool_first(net)
    >>> [type(layer).__name__ for layer in net]
    ['Conv2d', 'MaxPool2d', 'ReLU']
    """
    if type(module) is not nn.Sequential:
        return
    for child in module:
        pool_first(child)
    for one, other in pairwise(list(module._modules)):
        activation, pool = module._modules[one], module._modules[other]
        if type(activation) is nn.ReLU and type(pool) in _POOLS and not _watched(activation, pool):
            module._modules[one], module._modules[other] = pool, activation


def _watched(*layers: nn.Module) -> bool:
    return any(
        getattr(layer, "return_indices", False) or any(getattr(layer, hooks) for hooks in _HOOKS)
        for layer in layers
    )
