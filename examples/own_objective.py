"""FedProx with a loss and a metric of your own: a proximal term keeps clients near the model they received.

Run it with `python examples/own_objective.py`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import heroes


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in which examples that the model gets right count for less."""
    losses = F.cross_entropy(outputs, targets, reduction="none")
    return ((1 - torch.exp(-losses)) ** 2 * losses).mean()


def worst_class(outputs: Tensor, targets: Tensor) -> float:
    """The accuracy on the class that the model knows least."""
    right = outputs.argmax(dim=1) == targets
    return min(float(right[targets == c].float().mean()) for c in targets.unique())


def main() -> heroes.Run:
    fedprox = {"strategy.name": "fedavg", "objective.proximal": 0.1, "objective.metrics": ("accuracy",)}
    config = heroes.recipes.digits(rounds=10).changed(fedprox)
    run = heroes.run(config, loss=focal, metrics={"worst_class": worst_class})
    print(run.records[-1].scores)
    return run


if __name__ == "__main__":
    main()
