"""Tests a model chunk by chunk, so that the sums have the same bits whoever counts which chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import torch

from heroes.client.metrics import MeanLoss, Whole
from heroes.client.objectives import Objective
from heroes.contracts import Metric
from heroes.data.examples import Examples
from heroes.errors import HeroesError, TrainingError, said
from heroes.messages import Score, Tensors
from heroes.models.family import LocalModel


@dataclass(frozen=True)
class Tally:
    """What one chunk contributes.

    Statistics of the loss and of every metric that streams, and the outputs and targets themselves if a
    metric needs all of them at once.
    """

    statistics: list[Any]
    gathered: Tensors = field(default_factory=dict)


def chunks(examples: Examples, batch_size: int) -> range:
    """The numbers of the chunks: chunk n begins at example n * batch_size."""
    return range(-(-len(examples) // batch_size))


@torch.no_grad()
def tally(
    model: LocalModel,
    examples: Examples,
    chunk: int,
    batch_size: int,
    device: torch.device,
    objective: Objective,
) -> Tally:
    """What a loaded model makes of one chunk, in evaluation mode."""
    model.module.eval()
    start = chunk * batch_size
    inputs, targets = examples.batch(np.arange(start, min(start + batch_size, len(examples))), device)
    outputs = model(inputs)
    statistics = [metric.start(outputs, targets) for metric in _streamed(objective)]
    whole = any(isinstance(metric, Whole) for metric in objective.metrics)
    return Tally(statistics, {"outputs": outputs.cpu(), "targets": targets.cpu()} if whole else {})


def total(objective: Objective, tallies: Sequence[Tally]) -> Score:
    """The score of all chunks, given in their order."""
    each = zip(*(tally.statistics for tally in tallies), strict=True)
    values = (
        metric.finish(reduce(metric.merge, statistics))
        for metric, statistics in zip(_streamed(objective), each, strict=True)
    )
    loss = next(values)
    found = {
        metric.name: _at_once(metric, tallies) if isinstance(metric, Whole) else next(values)
        for metric in objective.metrics
    }
    return Score(loss, found, objective.metrics[0].lower_is_better)


def _at_once(metric: Whole, tallies: Sequence[Tally]) -> float:
    outputs, targets = (torch.cat([t.gathered[name] for t in tallies]) for name in ("outputs", "targets"))
    return metric.of(outputs, targets)


def evaluate(
    model: LocalModel, examples: Examples, batch_size: int, device: torch.device, objective: Objective
) -> Score:
    """Score a loaded model on all examples."""
    counted = chunks(examples, batch_size)
    return total(
        objective, [tally(model, examples, chunk, batch_size, device, objective) for chunk in counted]
    )


@contextmanager
def testing() -> Iterator[None]:
    """What goes wrong inside is one sentence: the user's model, loss and metrics can fail in any way."""
    try:
        yield
    except Exception as error:
        raise untested(reason(error)) from error


def untested(why: str) -> TrainingError:
    """The error to raise when a model cannot be tested."""
    return TrainingError(f"the model could not be tested: {why}")


def reason(error: Exception) -> str:
    """Why a model could not be tested."""
    return str(error) if isinstance(error, HeroesError) else said(error)


def _streamed(objective: Objective) -> list[Metric]:
    return [
        MeanLoss(objective.loss),
        *(metric for metric in objective.metrics if not isinstance(metric, Whole)),
    ]
