"""Steps charged by prices: worked out by hand, and near what was measured."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from heroes.fleet.costs import step_flops
from heroes.models import cnn, digits_cnn
from heroes.models.family import Family
from heroes.models.layers import ComposedLinear
from heroes.models.paths import FACTORED, PLAIN_CONVOLUTION, PLAIN_LINEAR, Work
from heroes.models.prices import Step, counted, priced
from heroes.slices.compose import Layout

ROWS = 7
NO_TARGETS = torch.zeros(ROWS)


def total(prices: tuple[float, ...], *amounts: float) -> float:
    return sum(price * amount for price, amount in zip(prices, amounts, strict=True))


def test_counting_alone_has_no_prices_and_gives_the_flops() -> None:
    step = counted(nn.Linear(3, 5), torch.randn(ROWS, 3), NO_TARGETS)
    assert step == Step(2 * 2 * ROWS * 3 * 5)
    assert step.equivalent(step.unit) == 2 * 2 * ROWS * 3 * 5


def test_dense_layers_by_hand() -> None:
    module = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 4))
    step = priced(module, torch.randn(ROWS, 2, 4, 4), NO_TARGETS)
    products, last = ROWS * 16 * 9 * 2 * 6, ROWS * 6 * 16 * 4
    assert step.flops == step.priced == 4 * products + 6 * last  # the inputs need no gradient
    first = total(PLAIN_CONVOLUTION, 1, products * 4 / 6, ROWS * 16 * (2 + 6), 9 * 2 * 6)
    second = total(PLAIN_LINEAR, 1, last, ROWS * (6 * 16 + 4), 6 * 16 * 4)
    assert step.seconds == pytest.approx(first + second)


def test_a_composed_layer_costs_what_its_path_does() -> None:
    layout, factors = Layout(3, 5), (nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.randn(16, 2, 3)))
    layer = ComposedLinear(nn.Linear(20, 12), layout, *factors, FACTORED)
    step = priced(layer, torch.randn(ROWS, 20), NO_TARGETS)
    assert step.seconds == Work(layout, 2, 4, ROWS, ROWS).seconds(FACTORED)
    assert step.flops == step.priced


class Reader(nn.Module):
    """Mostly without a price; one layer is used twice, one is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(3, 5, batch_first=True)
        self.twice = nn.Linear(5, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.named = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.frozen(self.twice(self.twice(self.recurrent(x)[0][:, -1])))
        out: Tensor = self.named(input=y)
        return out


def test_what_has_no_price_is_charged_by_its_flops() -> None:
    module = Reader()
    step = priced(module, torch.randn(ROWS, 6, 3), NO_TARGETS)
    assert step.priced == 2 * 6 * ROWS * 5 * 5
    assert step.flops == step_flops(module, torch.randn(ROWS, 6, 3), NO_TARGETS)
    once = total(PLAIN_LINEAR, 1, ROWS * 5 * 5, ROWS * 10, 5 * 5)
    assert step.seconds == pytest.approx(2 * once)
    assert step.equivalent(1e9) == pytest.approx(step.flops - step.priced + 2e9 * once)
    recurrent = priced(
        nn.LSTM(3, 5, batch_first=True), torch.randn(ROWS, 6, 3), NO_TARGETS, lambda y, _: y[0].sum()
    )
    assert (recurrent.priced, recurrent.unit, recurrent.equivalent(0.0)) == (0, 0.0, recurrent.flops)


def test_pricing_leaves_no_hooks_and_no_gradients() -> None:
    module = Reader()
    priced(module, torch.randn(ROWS, 6, 3), NO_TARGETS)
    assert not any(layer._forward_hooks for layer in module.modules())
    assert all(p.grad is None for p in module.parameters())


MEASURED = {"cnn": (0.97, 0.85, 0.82, 0.62), "digits": (1.40, 1.25, 1.16, 0.96)}  # docs/performance.md


@pytest.mark.parametrize(
    ("name", "build", "shape"),
    [("cnn", partial(cnn.build, max_width=4), (32, 3, 32, 32)), ("digits", digits_cnn.build, (16, 1, 8, 8))],
)
def test_composed_against_dense_is_near_what_was_measured_and_nearer_than_by_flops(
    name, build, shape
) -> None:
    family, x = Family(build, 4), torch.zeros(shape)
    dense = [priced(family.dense(width).module, x, x) for width in range(1, 5)]
    unit = dense[-1].unit
    assert dense[-1].equivalent(unit) == pytest.approx(dense[-1].flops, rel=1e-12)
    by_price, by_flops = [], []
    for width, plain in enumerate(dense, 1):
        composed = priced(family.composed(width).module, x, x)
        by_price.append(composed.equivalent(unit) / plain.equivalent(unit))
        by_flops.append(composed.flops / plain.flops)
    assert by_price == pytest.approx(MEASURED[name], abs=0.15)
    for at_price, at_flops, took in zip(by_price[1:], by_flops[1:], MEASURED[name][1:], strict=True):
        assert abs(at_price - took) < abs(at_flops - took)
