"""A training step of the composed against the dense model, for every model and width: what it takes, and what
the virtual clock charges for it by FLOPs and by prices.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common import save, say, show
from heroes.client.training import LocalSettings, Trainer
from heroes.models import MODELS
from heroes.models.family import Family, LocalModel
from heroes.models.prices import priced

WIDTHS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Case:
    """A model, a batch for it, and how many steps make a turn."""

    options: dict[str, Any]
    batch: Callable[[], Tensor]
    classes: int
    steps: int
    goal: float | None = None  # at full width
    rank_ratio: float = 1.0


def images(count: int, channels: int, size: int) -> Tensor:
    return torch.randn(count, channels, size, size).contiguous(memory_format=torch.channels_last)


CASES = {
    "cnn": Case({"max_width": 4}, lambda: images(32, 3, 32), 10, 4, 0.85),
    "cnn, rank 0.25": Case({"max_width": 4}, lambda: images(32, 3, 32), 10, 4, rank_ratio=0.25),
    "resnet18": Case({"max_width": 4}, lambda: images(32, 3, 64), 100, 1, 0.6),
    "char_rnn": Case({"max_width": 4}, lambda: torch.randint(0, 80, (32, 80)), 80, 4, rank_ratio=0.5),
    "vit": Case({"max_width": 4}, lambda: images(32, 3, 32), 10, 1),
    "digits_cnn": Case({}, lambda: images(16, 1, 8), 10, 50),
    "digits_cnn, rank 0.25": Case({}, lambda: images(16, 1, 8), 10, 50, rank_ratio=0.25),
}


def main(quick: bool = False) -> None:
    torch.set_num_threads(1)
    rows, figures = [], []
    for name, case in CASES.items():
        family = Family(partial(MODELS[name.partition(",")[0]], **case.options), max(WIDTHS), case.rank_ratio)
        for width in WIDTHS:
            dense, composed = _measure(family, case, width, turns=3 if quick else 11)
            ratio = statistics.median(c / d for c, d in zip(composed, dense, strict=True))
            goal = case.goal if case.goal and width == max(WIDTHS) else 1.05
            milliseconds = [statistics.median(side) / case.steps * 1e3 for side in (dense, composed)]
            flops, prices = _charged(family, case, width)
            rows.append(
                (
                    f"{name}, width {width}",
                    *(f"{value:.2f}" for value in (*milliseconds, ratio, goal, flops, prices)),
                )
            )
            figures.append(
                {"model": name, "width": width, "dense_ms": milliseconds[0], "composed_ms": milliseconds[1]}
            )
            figures[-1] |= {"ratio": ratio, "goal": goal, "flops": flops, "priced": prices}
            say("  ".join(rows[-1]))
    show(
        "A training step, composed against dense, one thread",
        ("", "dense ms", "composed ms", "ratio", "goal", "by FLOPs", "priced"),
        rows,
    )
    save("composition", figures)


def _charged(family: Family, case: Case, width: int) -> tuple[float, float]:
    """Composed against dense as the clock charges them: by FLOPs, and by prices."""
    inputs = case.batch()
    whole, dense, composed = (
        priced(model.module, inputs, inputs)
        for model in (family.dense(max(WIDTHS)), family.dense(width), family.composed(width))
    )
    equivalent = composed.equivalent(whole.unit) / dense.equivalent(whole.unit)
    return composed.flops / dense.flops, equivalent


def _measure(family: Family, case: Case, width: int, turns: int) -> tuple[list[float], list[float]]:
    """Seconds of every turn, dense and composed, one after the other."""
    trainer = Trainer(family, LocalSettings())
    inputs, targets = case.batch(), torch.randint(0, case.classes, (len(case.batch()),))
    factors = {name: torch.randn(shape) * 0.05 for name, shape in family.tensor_shapes(width).items()}
    sides = [
        _steps(
            trainer, trainer.model("dense", width), family.plain_weights(factors), inputs, targets, case.steps
        )
    ]
    sides.append(_steps(trainer, trainer.model("composed", width), factors, inputs, targets, case.steps))
    seconds: tuple[list[float], list[float]] = [], []
    for turn in range(turns + 1):
        for side, step in enumerate(sides):
            start = time.perf_counter()
            step()
            if turn:
                seconds[side].append(time.perf_counter() - start)
    return seconds


def _steps(
    trainer: Trainer, model: LocalModel, tensors: Any, inputs: Tensor, targets: Tensor, steps: int
) -> Callable[[], None]:
    """What makes up local training: forward, backward, update."""
    model.load(tensors)
    parameters = list(model.parameters.values())
    move = trainer.settings.optimiser.begin(parameters)

    def run() -> None:
        for _ in range(steps):
            F.cross_entropy(model(inputs), targets).backward()
            move(1e-3)
            for parameter in parameters:
                parameter.grad = None

    return run
