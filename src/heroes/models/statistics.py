"""What batch norms keep: running means and variances, which no client is asked for.

In training a batch norm takes the statistics of the batch at hand. Those that a test needs depend on the
weights and on the width, so that they cannot be averaged like weights; they are gathered anew for every model
that is tested or handed out, in one pass over a batch of examples.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

KEPT = ("running_mean", "running_var")


def keepers(module: nn.Module) -> dict[str, _BatchNorm]:
    """The batch norms that keep statistics, by path."""
    return {
        path: inside
        for path, inside in module.named_modules()
        if isinstance(inside, _BatchNorm) and inside.running_mean is not None
    }


def full_name(path: str, name: str) -> str:
    """What `state_dict` calls a tensor of the module at this path."""
    return f"{path}.{name}" if path else name


def kept_names(module: nn.Module) -> tuple[str, ...]:
    """The names of what they keep."""
    return tuple(full_name(path, name) for path in keepers(module) for name in KEPT)


def at_hand(module: nn.Module) -> nn.Module:
    """Put the module in evaluation mode but for its batch norms, which take the batch at hand."""
    module.eval()
    for norm in keepers(module).values():
        norm.train()
    return module
