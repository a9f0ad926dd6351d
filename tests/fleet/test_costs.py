"""FLOPs and bytes against numbers worked out by hand. A multiply-add counts as two operations."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heroes.fleet.costs import step_flops
from heroes.models import digits_cnn
from heroes.models.family import Family
from heroes.models.layers import ComposedConv2d, ComposedLinear
from heroes.models.paths import COLUMNS, COMPOSE, FACTORED, Work, quickest
from heroes.slices.compose import Layout

BATCH = 7


class Pooled(nn.Module):
    """A body, then the mean over positions as class scores; the input needs no gradient unless told."""

    def __init__(self, body: nn.Module, input_gradient: bool = False) -> None:
        super().__init__()
        self.body = body
        self.input_gradient = input_gradient

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x.requires_grad_(self.input_gradient))
        y = y[0] if isinstance(y, tuple) else y
        return y.flatten(2).mean(2) if y.dim() == 4 else y.mean(1) if y.dim() == 3 else y


def flops(body: nn.Module, *shape: int, input_gradient: bool = False) -> int:
    x = torch.randn(BATCH, *shape)
    return step_flops(Pooled(body, input_gradient), x, torch.zeros(BATCH, dtype=torch.long))


def test_linear_layers_cost_forward_weight_gradient_and_input_gradient() -> None:
    first, second = 2 * BATCH * 3 * 5, 2 * BATCH * 5 * 4
    assert flops(nn.Linear(3, 5), 3) == 2 * first
    assert flops(nn.Linear(3, 5), 3, input_gradient=True) == 3 * first
    assert flops(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4)), 3) == 2 * first + 3 * second


def test_convolution_costs_every_kernel_position_at_every_output_position() -> None:
    once = 2 * BATCH * (4 * 4) * (3 * 3) * 2 * 6  # 8x8 in, stride 2 and padding 1: 4x4 out
    assert flops(nn.Conv2d(2, 6, 3, stride=2, padding=1), 2, 8, 8) == 2 * once
    assert flops(nn.Conv2d(2, 6, 3, stride=2, padding=1), 2, 8, 8, input_gradient=True) == 3 * once


def test_a_grouped_convolution_costs_its_share_in_all_three_products() -> None:
    once = 2 * BATCH * (6 * 6) * (3 * 3) * (8 // 4) * 12  # every output reads a quarter of the 8 inputs
    assert flops(nn.Conv2d(8, 12, 3, groups=4), 8, 8, 8) == 2 * once
    assert flops(nn.Conv2d(8, 12, 3, groups=4), 8, 8, 8, input_gradient=True) == 3 * once


def test_a_transposed_convolution_costs_by_its_input_positions() -> None:
    once = 2 * BATCH * (5 * 5) * (2 * 2) * 3 * 4
    assert flops(nn.ConvTranspose2d(3, 4, 2, stride=2), 3, 5, 5, input_gradient=True) == 3 * once


def composed_conv(path: str, width: int, inputs: int = 4, outputs: int = 4, rank: int = 4) -> ComposedConv2d:
    layout = Layout(outputs, inputs, (3, 3))
    dense = nn.Conv2d(width * inputs, width * outputs, 3, padding=1)
    basis, coefficient = torch.randn(9 * inputs, rank), torch.randn(width**2, rank, outputs)
    return ComposedConv2d(dense, layout, nn.Parameter(basis), nn.Parameter(coefficient), path)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_composed_convolution_on_the_compose_path_costs_the_weight_and_the_dense_layer(width: int) -> None:
    dense = 2 * BATCH * 36 * 9 * (4 * width) * (4 * width)
    weight = 2 * (9 * 4) * 4 * (width**2 * 4)  # (k*I, R) times (R, p*p*O); two gradients
    assert flops(composed_conv(COMPOSE, width), 4 * width, 6, 6, input_gradient=True) == 3 * (dense + weight)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_composed_convolution_on_the_factored_path_costs_basis_and_mixing(width: int) -> None:
    per_position = 9 * 4 * 4 * width + width**2 * 4 * 4  # k*I*R*p + p*p*R*O
    once = 2 * BATCH * 36 * per_position
    assert flops(composed_conv(FACTORED, width), 4 * width, 6, 6, input_gradient=True) == 3 * once


def test_the_factored_convolution_has_the_promised_share_of_the_dense_flops_at_full_width() -> None:
    dense = flops(nn.Conv2d(16, 16, 3, padding=1), 16, 6, 6, input_gradient=True)
    factored = flops(composed_conv(FACTORED, 4), 16, 6, 6, input_gradient=True)
    assert factored / dense == pytest.approx((9 * 4 + 16) / (9 * 16))  # 0.36 for I = O = R


@pytest.mark.parametrize("width", [1, 4])
def test_the_flops_counted_are_those_of_the_path_taken(width: int) -> None:
    layout = Layout(4, 4, (3, 3))
    chosen = ComposedConv2d(
        nn.Conv2d(4 * width, 4 * width, 3, padding=1),
        layout,
        nn.Parameter(torch.randn(36, 4)),
        nn.Parameter(torch.randn(width**2, 4, 4)),
    )
    paths = (COMPOSE, FACTORED, COLUMNS)
    counted = {
        path: flops(composed_conv(path, width), 4 * width, 6, 6, input_gradient=True) for path in paths
    }
    taken = quickest(Work(layout, 4, width, BATCH * 36, BATCH * 36))
    assert flops(chosen, 4 * width, 6, 6, input_gradient=True) == counted[taken]
    assert counted[COMPOSE] != counted[FACTORED] == counted[COLUMNS]


def test_a_composed_linear_layer_costs_basis_and_mixing_on_the_factored_path() -> None:
    layout, factors = Layout(3, 5), (nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.randn(16, 2, 3)))
    layer = ComposedLinear(nn.Linear(20, 12), layout, *factors, FACTORED)
    assert flops(layer, 20, input_gradient=True) == 3 * 2 * BATCH * (4 * 5 * 2 + 16 * 2 * 3)


STEPS, INPUTS, HIDDEN = 6, 3, 5


def recurrent_flops(gates: int, input_gradient: bool) -> int:
    """Without the gradient to the initial state, which nobody asks for."""
    from_input = 2 * BATCH * STEPS * gates * HIDDEN * INPUTS
    from_state = 2 * BATCH * gates * HIDDEN * HIDDEN  # one time step
    return from_input * (3 if input_gradient else 2) + from_state * (3 * STEPS - 1)


@pytest.mark.parametrize("input_gradient", [False, True])
@pytest.mark.parametrize(("layer", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_recurrent_layers_cost_their_gates_at_every_time_step(
    layer: Callable[..., nn.Module], gates: int, input_gradient: bool
) -> None:
    body = layer(INPUTS, HIDDEN, batch_first=True)
    assert flops(body, STEPS, INPUTS, input_gradient=input_gradient) == recurrent_flops(gates, input_gradient)


def test_a_deep_bidirectional_projected_lstm_counts_every_matrix() -> None:
    body = nn.LSTM(INPUTS, HIDDEN, num_layers=2, bidirectional=True, proj_size=2, batch_first=True)
    first, second = 4 * HIDDEN * INPUTS, 4 * HIDDEN * (2 * 2)  # layer 1 reads both directions' projections
    state, projection = 4 * HIDDEN * 2, 2 * HIDDEN
    every_step = 2 * first + 3 * second + 2 * 3 * (state + projection)
    directions, initial_states = 2, 2 * state
    assert flops(body, STEPS, INPUTS) == 2 * BATCH * directions * (STEPS * every_step - initial_states)


def test_counting_leaves_no_gradients() -> None:
    body = nn.LSTM(INPUTS, HIDDEN, batch_first=True)
    assert flops(body, STEPS, INPUTS) == flops(body, STEPS, INPUTS)
    assert all(p.grad is None for p in body.parameters())


class SelfAttention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return y


def test_attention_costs_four_projections_and_two_products() -> None:
    projections = 4 * 2 * BATCH * STEPS * 8 * 8
    products = 2 * 2 * BATCH * STEPS * STEPS * 8  # scores, and the weighted values, over all heads
    counted = flops(SelfAttention(8, 2), STEPS, 8, input_gradient=True)
    assert counted == 3 * (projections + products)


def test_a_composed_recurrent_layer_composes_each_weight_once() -> None:
    family = Family(lambda width: nn.RNN(INPUTS, HIDDEN * width, batch_first=True), 4)
    width, hidden = 4, 4 * HIDDEN
    dense = flops(family.module(width), STEPS, INPUTS)
    weight = 2 * HIDDEN * HIDDEN * (width**2 * HIDDEN)  # weight_hh: (I, R) times (R, p*p*O)
    assert family.parameters[1].kind == "composed"
    assert dense == 2 * BATCH * hidden * (2 * STEPS * INPUTS + hidden * (3 * STEPS - 1))
    assert flops(family.composed(width).module, STEPS, INPUTS) == dense + 3 * weight


def test_the_composed_digits_model_is_cheaper_than_the_dense_one_at_full_width() -> None:
    family = Family(digits_cnn.build, 4)
    x, y = torch.randn(BATCH, 1, 8, 8), torch.zeros(BATCH, dtype=torch.long)
    composed, dense = step_flops(family.composed(4).module, x, y), step_flops(family.module(4), x, y)
    assert composed < 0.5 * dense
