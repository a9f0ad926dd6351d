"""Your own model and your own data: a width-aware `build`, two sets of tensors, and a partition.

Run it with `python examples/own_model.py`.
"""

from __future__ import annotations

import torch
from torch import nn

import heroes


def build(width: int) -> nn.Module:
    """A perceptron whose hidden layers are `width` times as wide as its narrowest version."""
    return nn.Sequential(
        nn.Linear(20, 16 * width),
        nn.ReLU(),
        nn.Linear(16 * width, 16 * width),
        nn.ReLU(),
        nn.Linear(16 * width, 4),
    )


def make_data(seed: int = 0, examples: int = 2400) -> tuple[heroes.Examples, heroes.Examples]:
    """Four noisy clouds in 20 dimensions; a torch Dataset would go through `heroes.data.from_dataset`."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(4, 20, generator=generator)
    labels = torch.randint(4, (examples,), generator=generator)
    inputs = centres[labels] + 1.5 * torch.randn(examples, 20, generator=generator)
    return heroes.Examples(inputs[400:], labels[400:]), heroes.Examples(inputs[:400], labels[:400])


def main() -> heroes.Run:
    config = heroes.recipes.digits(rounds=15).changed(
        {
            "experiment": "clouds",
            "data.partition": "dirichlet",
            "data.alpha": 0.5,
            "federation.clients": 30,
            "fleet.name": "paper",
        }
    )
    run = heroes.run(config, model=build, data=make_data())
    print(run.summary())
    phone = run.model(width=1)  # a plain module, a quarter as wide
    print("parameters for the narrowest device:", sum(p.numel() for p in phone.parameters()))
    return run


if __name__ == "__main__":
    main()
