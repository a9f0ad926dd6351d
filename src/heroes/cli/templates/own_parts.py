"""The model and the data of this federation. Both are examples that run as they are; put yours here.

A loss, metrics, a strategy or a sampler of your own may follow under these names. `heroes run --own
own_parts.py` tries them all on one machine.
"""

import torch
from torch import nn

import heroes


def build(width: int) -> nn.Module:
    """A model for every width from 1 to model.max_width; hidden layers grow with the width."""
    hidden = 16 * width
    return nn.Sequential(
        nn.Linear(20, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4)
    )


def data(client: int | None) -> heroes.Examples:
    """On a node, this client's examples, which stay there; on the server (None), the test examples."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 20, generator=draw)
    draw.manual_seed(1 if client is None else 2 + client)
    labels = torch.randint(4, (400,), generator=draw)
    return heroes.Examples(centres[labels] + 1.5 * torch.randn(400, 20, generator=draw), labels)
