"""Measure a training step of composed layers on every path, of the dense layers they equal and of layers
without products; say how often the rule of `heroes.models.paths` is right, and fit the prices by which a
priced clock charges (`heroes.models.prices`).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from benchmarks.common import save, say, show
from heroes.models.layers import ComposedConv2d, ComposedLinear
from heroes.models.paths import CONVOLUTION, LINEAR, Work, quickest
from heroes.models.prices import PLAIN, composed_amounts, plain_amounts
from heroes.slices.compose import Layout, empty_factors

WIDTHS = (1, 2, 3, 4)
KINDS = (("CONVOLUTION", True, CONVOLUTION), ("LINEAR", False, LINEAR))


@dataclass(frozen=True)
class Case:
    """A layer and what it is given; `image` is 0 for a linear layer, whose rows are `batch`."""

    layout: Layout
    batch: int
    image: int = 0
    stride: int = 1
    rank_ratio: float = 1.0

    @property
    def rank(self) -> int:
        return self.layout.rank(self.rank_ratio, max(WIDTHS))

    def __str__(self) -> str:
        of = f"{self.layout.inputs} to {self.layout.outputs}"
        rank = f"rank {self.rank}"
        if not self.image:
            return f"linear {of}, {rank}, {self.batch} rows"
        side = self.layout.kernel[0]
        return f"{side}x{side} {of}, {rank}, stride {self.stride}, {self.batch} of {self.image} pixels"

    def layer(self, width: int, path: str) -> tuple[nn.Module, Tensor]:
        layout = self.layout
        factors = [nn.Parameter(zeros) for zeros in empty_factors(layout, self.rank, width)]
        for factor in factors:
            nn.init.normal_(factor, std=0.1)
        if not self.image:
            dense = nn.Linear(width * layout.inputs, width * layout.outputs)
            x = torch.randn(self.batch, width * layout.inputs)
            return dense if path == PLAIN else ComposedLinear(dense, layout, *factors, path), x
        size = layout.kernel[0]
        conv = nn.Conv2d(
            width * layout.inputs, width * layout.outputs, size, self.stride, padding=size // 2, bias=False
        )
        x = torch.randn(self.batch, width * layout.inputs, self.image, self.image)
        layer = conv.to(memory_format=torch.channels_last)
        if path != PLAIN:
            layer = ComposedConv2d(conv, layout, *factors, path)
        return layer, x.contiguous(memory_format=torch.channels_last)

    def work(self, width: int, bfloat16: bool) -> Work:
        positions = self.batch * max(1, self.image) ** 2
        return Work(self.layout, self.rank, width, positions, positions // self.stride**2, bfloat16)

    def amounts(self, width: int, path: str) -> tuple[float, ...]:
        work, layout = self.work(width, False), self.layout
        if path != PLAIN:
            return composed_amounts(work, path)
        weights = width**2 * layout.basis_rows * layout.outputs
        values = width * (work.inputs * layout.inputs + work.outputs * layout.outputs)
        return plain_amounts(6 * work.outputs * weights, values, weights)


LAYERS = [
    *(
        Case(Layout(o, i, (3, 3)), batch, image)
        for i, o, image in [(8, 16, 8), (16, 16, 4)]
        for batch in (16, 32)
    ),
    *(
        Case(Layout(o, i, (3, 3)), batch, image)
        for i, o, image in [(16, 32, 16), (32, 32, 8)]
        for batch in (16, 32)
    ),
    *(Case(Layout(o, o, (3, 3)), 32, image) for o, image in [(16, 16), (64, 4), (128, 2), (64, 8), (128, 4)]),
    *(Case(Layout(o, o // 2, (3, 3)), 32, image, 2) for o, image in [(32, 16), (64, 8), (128, 4)]),
    *(Case(Layout(o, o // 2, (1, 1)), 32, image, 2) for o, image in [(32, 16), (64, 8), (128, 4)]),
    *(
        Case(Layout(o, i), rows)
        for i, o in [(64, 64), (64, 128), (128, 64), (128, 16)]
        for rows in (32, 512, 2048)
    ),
]
IMAGES = [(8, 8), (16, 8), (16, 32), (64, 4), (64, 16), (64, 32), (128, 8), (128, 16)]
"""channels and pixels of what layers without products are given"""
LIGHT: dict[str, Callable[[int], nn.Module]] = {
    "norm": lambda channels: nn.GroupNorm(4, channels),
    "activation": lambda _: nn.ReLU(),
    "pool": lambda _: nn.MaxPool2d(2),
}
CASES = [replace(layer, rank_ratio=ratio) for ratio in (1.0, 0.25) for layer in LAYERS]


def main(quick: bool = False) -> None:
    torch.set_num_threads(1)
    found = [_fitted(bfloat16, turns=3 if quick else 9) for bfloat16 in (False, True)]
    save("paths", dict(zip(("float32", "bfloat16"), found, strict=True)))


def _fitted(bfloat16: bool, turns: int) -> dict[str, Any]:
    """Measure all layers in one precision; the prices that fit, and how good the rule is now."""
    rows = []
    for case in CASES:
        for width in WIDTHS:
            seconds = _measure(case, width, bfloat16, turns)
            rows.append((case, width, seconds))
            say(
                f"{case} width {width}: "
                + ", ".join(f"{path} {s * 1e3:.3g} ms" for path, s in seconds.items())
            )
    prices = {
        name: {
            path: _fit([(c.amounts(w, path), s[path]) for c, w, s in rows if bool(c.image) == conv])
            for path in (*paths[bfloat16], PLAIN)
        }
        for name, conv, paths in KINDS
    }
    losses = sorted(
        (
            s[quickest(case.work(width, bfloat16))] / min(s[path] for path in s if path != PLAIN),
            str(case),
            width,
        )
        for case, width, s in rows
    )
    drift = {
        name: statistics.median(
            s[path] / c.work(w, bfloat16).seconds(path)
            for c, w, s in rows
            if bool(c.image) == conv
            for path in paths[bfloat16]
        )
        for name, conv, paths in KINDS
    }
    light = {
        kind: _fit(
            [_measure_light(make(channels), channels, image, bfloat16, turns) for channels, image in IMAGES]
        )
        for kind, make in LIGHT.items()
    }
    _show("bfloat16" if bfloat16 else "float32", prices, losses)
    for kind, found in light.items():
        print(f"LIGHT {kind} = ({', '.join(f'{price:.3g}' for price in found)})")
    print("what composed layers take here, against the rule's prices:", drift)
    return {
        "prices": {**prices, "LIGHT": light},
        "layers": [{"case": str(c), "width": w, "seconds": s} for c, w, s in rows],
    }


def _show(
    precision: str, prices: dict[str, dict[str, list[float]]], losses: list[tuple[float, str, int]]
) -> None:
    show(
        f"Time of a layer in {precision} on the path that the rule picks, against its best path (1 = right)",
        ("", "ratio"),
        [("median", f"{statistics.median(loss for loss, _, _ in losses):.3f}")]
        + [(f"{name} width {width}", f"{loss:.3f}") for loss, name, width in losses[-8:]],
    )
    print(f"prices fitted to this machine, {precision}:")
    for name, of_kind in prices.items():
        print(f"{name} = {{")
        for path, found in of_kind.items():
            print(f"    {path.upper()}: ({', '.join(f'{price:.3g}' for price in found)}),")
        print("}")


def _measure(case: Case, width: int, bfloat16: bool, turns: int) -> dict[str, float]:
    paths = (CONVOLUTION if case.image else LINEAR)[bfloat16]
    steps = {path: _step(*case.layer(width, path), bfloat16) for path in (*paths, PLAIN)}
    seconds: dict[str, list[float]] = {path: [] for path in steps}
    for turn in range(turns + 1):
        for path, step in steps.items():
            took = _thread_seconds(step)
            if turn:
                seconds[path].append(took)
    return {path: min(of_path) for path, of_path in seconds.items()}


def _measure_light(
    layer: nn.Module, channels: int, image: int, bfloat16: bool, turns: int
) -> tuple[tuple[float, float], float]:
    """The amounts of a layer without products, values in and out, and its seconds."""
    x = torch.randn(32, channels, image, image).contiguous(memory_format=torch.channels_last)
    step = _step(layer, x, bfloat16)
    seconds = [_thread_seconds(step) for _ in range(turns + 1)]
    return (1.0, float(x.numel() + layer(x).numel())), min(seconds[1:])


def _thread_seconds(step: Callable[[], object]) -> float:
    start = time.thread_time()
    step()
    return time.thread_time() - start


def _step(layer: nn.Module, x: Tensor, bfloat16: bool) -> Callable[[], object]:
    x = x.to(torch.bfloat16 if bfloat16 else torch.float32).requires_grad_()  # as the layer before left it
    trained = ("weight", "basis", "coefficient")
    wanted = [x, *(p for name, p in layer.named_parameters() if name in trained)]

    def forward() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            outputs: Tensor = layer(x)
        return outputs

    pull = torch.randn_like(forward())
    return lambda: torch.autograd.grad(forward(), wanted, pull)


def _fit(measured: list[tuple[tuple[float, ...], float]]) -> list[float]:
    """Prices that make the expected seconds close to the measured ones, relative to these."""
    scaled = np.array([[amount / seconds for amount in amounts] for amounts, seconds in measured])
    unit = scaled.max(axis=0)
    found, _ = nnls(scaled / unit, np.ones(len(scaled)))
    return [float(price) for price in found / unit]


if __name__ == "__main__":
    main("--quick" in sys.argv)
