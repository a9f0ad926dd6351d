"""How good a model is on the test set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from heroes.data.examples import Examples
from heroes.models.family import LocalModel


@dataclass(frozen=True)
class Score:
    """Share of correct answers, and mean loss."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(model: LocalModel, examples: Examples, batch_size: int, device: torch.device) -> Score:
    """Score a loaded model on all examples, in evaluation mode."""
    model.module.eval()
    right, answers, loss = 0, 0, 0.0
    for start in range(0, len(examples), batch_size):
        inputs, targets = examples.batch(np.arange(start, min(start + batch_size, len(examples))), device)
        scores = model.module(inputs)
        right += int((scores.argmax(dim=1) == targets).sum())
        answers += targets.numel()
        loss += float(F.cross_entropy(scores, targets, reduction="sum"))
    return Score(right / answers, loss / answers)
