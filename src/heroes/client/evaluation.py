"""How good a model is on the test set. It is counted chunk by chunk, so that whoever counts, the sums are the
same bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F

from heroes.data.examples import Examples
from heroes.messages import Score
from heroes.models.family import LocalModel

Tally = tuple[int, int, float]  # right answers, answers, sum of losses


def chunks(examples: Examples, batch_size: int) -> range:
    """The numbers of the chunks: chunk n begins at example n * batch_size."""
    return range(-(-len(examples) // batch_size))


@torch.no_grad()
def tally(model: LocalModel, examples: Examples, chunk: int, batch_size: int, device: torch.device) -> Tally:
    """What a loaded model gets right in one chunk, in evaluation mode."""
    model.module.eval()
    start = chunk * batch_size
    inputs, targets = examples.batch(np.arange(start, min(start + batch_size, len(examples))), device)
    scores = model(inputs)
    losses = F.cross_entropy(scores, targets, reduction="none")
    return (
        int((scores.argmax(dim=1) == targets).sum()),
        targets.numel(),
        float(losses.to("cpu", torch.float64).sum()),
    )


def total(tallies: Iterable[Tally]) -> Score:
    """The score of all chunks, given in their order."""
    right, answers, loss = 0, 0, 0.0
    for some_right, some, some_loss in tallies:
        right, answers, loss = right + some_right, answers + some, loss + some_loss
    return Score(right / answers, loss / answers)


def evaluate(model: LocalModel, examples: Examples, batch_size: int, device: torch.device) -> Score:
    """Score a loaded model on all examples."""
    return total(tally(model, examples, chunk, batch_size, device) for chunk in chunks(examples, batch_size))
