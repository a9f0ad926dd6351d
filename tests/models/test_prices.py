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
from heroes.models.paths import FACTORED
from heroes.models.prices import CONVOLUTION, LANES, LIGHT, LINEAR, PLAIN, Step, counted, priced
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
    module = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.Flatten(), nn.Linear(6 * 16, 4))
    step = priced(module, torch.randn(ROWS, 2, 4, 4), NO_TARGETS)
    products, last = ROWS * 16 * 9 * 2 * 6, ROWS * 6 * 16 * 4
    assert step.flops == step.priced == 4 * products + 6 * last  # the inputs need no gradient
    first = total(CONVOLUTION[PLAIN], 1, products * 4 / 6, ROWS * 16 * (2 + 6), 9 * 2 * 6)
    second = total(LINEAR[PLAIN], 1, last, ROWS * (6 * 16 + 4), 6 * 16 * 4)
    assert step.seconds == pytest.approx(first + second)


def test_layers_without_products_cost_their_time_and_no_flops() -> None:
    light = [nn.GroupNorm(2, 6), nn.MaxPool2d(2), nn.ReLU()]
    module = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), *light)
    step = priced(module, torch.randn(ROWS, 2, 4, 4), NO_TARGETS)
    bare = priced(module[0], torch.randn(ROWS, 2, 4, 4), NO_TARGETS)
    assert (step.flops, step.priced) == (bare.flops, bare.priced)
    values = ROWS * 6 * 16
    passed = {"norm": 2 * values, "pool": values + values // 4, "activation": 2 * values // 4}
    by_hand = sum(total(LIGHT[kind], 1, count) for kind, count in passed.items())
    assert step.seconds == pytest.approx(bare.seconds + by_hand)
    assert step.equivalent(step.unit) == pytest.approx(step.flops)


def test_a_composed_layer_costs_what_its_path_does() -> None:
    layout, factors = Layout(3, 5), (nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.randn(16, 2, 3)))
    layer = ComposedLinear(nn.Linear(20, 12), layout, *factors, FACTORED)
    step = priced(layer, torch.randn(ROWS, 20), NO_TARGETS)
    products, mixed, moved = ROWS * 5 * 4 * LANES, ROWS * 16 * 3 * LANES, ROWS * 4 * (5 + LANES)
    assert step.seconds == pytest.approx(total(LINEAR[FACTORED], 1, products, mixed, moved, 5 * LANES))
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
    once = total(LINEAR[PLAIN], 1, ROWS * 5 * 5, ROWS * 10, 5 * 5)
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


MEASURED = {  # by rank and width; docs/performance.md
    ("cnn", 1.0): (0.97, 0.96, 0.86, 0.82),
    ("cnn", 0.25): (1.05, 0.66, 0.54, 0.53),
    ("digits", 1.0): (1.35, 1.36, 1.08, 0.99),
    ("digits", 0.25): (1.14, 1.26, 1.01, 0.84),
}


@pytest.mark.parametrize("rank_ratio", [1.0, 0.25])
@pytest.mark.parametrize(
    ("name", "build", "shape"),
    [("cnn", partial(cnn.build, max_width=4), (32, 3, 32, 32)), ("digits", digits_cnn.build, (16, 1, 8, 8))],
)
def test_composed_against_dense_is_near_what_was_measured_and_nearer_than_by_flops(
    name, build, shape, rank_ratio
) -> None:
    family, x, took = Family(build, 4, rank_ratio), torch.zeros(shape), MEASURED[name, rank_ratio]
    dense = [priced(family.dense(width).module, x, x) for width in range(1, 5)]
    unit = dense[-1].unit
    assert dense[-1].equivalent(unit) == pytest.approx(dense[-1].flops, rel=1e-12)
    by_price, by_flops = [], []
    for width, plain in enumerate(dense, 1):
        composed = priced(family.composed(width).module, x, x)
        by_price.append(composed.equivalent(unit) / plain.equivalent(unit))
        by_flops.append(composed.flops / plain.flops)
    assert by_price == pytest.approx(took, abs=0.25)
    for at_price, at_flops, real in zip(by_price[1:], by_flops[1:], took[1:], strict=True):
        assert abs(at_price - real) < abs(at_flops - real)
