"""A composed layer equals the dense layer with its weight: forward and backward, at every width, on every
path.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heroes.errors import ModelError
from heroes.models.family import Family
from heroes.models.layers import ComposedConv2d, ComposedLinear
from heroes.models.paths import COLUMNS, COMPOSE, FACTORED, Work, quickest
from heroes.models.stacks import stacked, stacked_parts
from heroes.slices.compose import Layout, compose

WIDTHS = [1, 2, 3, 4]
PATHS = [COMPOSE, FACTORED, COLUMNS]
I, O, R = 3, 2, 4  # noqa: E741


def factors(layout: Layout, width: int) -> tuple[nn.Parameter, nn.Parameter]:
    generator = torch.Generator().manual_seed(width)
    basis = torch.randn(layout.basis_rows, R, generator=generator, dtype=torch.float64)
    coefficient = torch.randn(width**2, R, layout.outputs, generator=generator, dtype=torch.float64)
    return nn.Parameter(basis), nn.Parameter(coefficient)


def assert_equals_dense(composed: ComposedConv2d | ComposedLinear, dense: nn.Module, x: Tensor) -> None:
    """Outputs, input gradients, bias gradients; factor gradients against autograd through compose."""
    twin = copy.deepcopy(dense)
    with torch.no_grad():
        twin.weight.copy_(composed.weight)
    x_dense, x_composed = (x.clone().requires_grad_() for _ in range(2))
    expected, got = twin(x_dense), composed(x_composed)
    torch.testing.assert_close(got, expected)
    pull = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    expected.backward(pull)
    got.backward(pull)
    torch.testing.assert_close(x_composed.grad, x_dense.grad)
    if twin.bias is not None:
        torch.testing.assert_close(composed.bias.grad, twin.bias.grad)
    assert_factor_gradients(composed, twin.weight.grad)


def assert_factor_gradients(composed: ComposedConv2d | ComposedLinear, weight_gradient: Tensor) -> None:
    basis, coefficient = (f.detach().requires_grad_() for f in (composed.basis, composed.coefficient))
    compose(basis, coefficient, composed.layout).backward(weight_gradient)
    torch.testing.assert_close(composed.basis.grad, basis.grad)
    torch.testing.assert_close(composed.coefficient.grad, coefficient.grad)


CONVOLUTIONS = {
    "plain": {"kernel_size": 3},
    "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
    "dilated": {"kernel_size": 3, "dilation": 2, "padding": 2, "bias": False},
    "oblong": {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0), "dilation": (2, 1)},
    "same": {"kernel_size": (3, 2), "padding": "same"},
    "same reflected": {"kernel_size": (2, 3), "padding": "same", "padding_mode": "reflect"},
    "reflect": {"kernel_size": 3, "padding": (2, 1), "padding_mode": "reflect", "bias": False},
    "circular": {"kernel_size": 3, "padding": 1, "padding_mode": "circular", "stride": 2},
    "one by one": {"kernel_size": 1},
}


@pytest.mark.parametrize("settings", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch's remark on speed
def test_composed_conv2d_equals_the_dense_convolution(
    width: int, path: str, settings: dict[str, object]
) -> None:
    dense = nn.Conv2d(I * width, O * width, dtype=torch.float64, **settings)
    layout = Layout(O, I, dense.kernel_size)
    x = torch.randn(2, I * width, 8, 7, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    assert_equals_dense(ComposedConv2d(dense, layout, *factors(layout, width), path), dense, x)


@pytest.mark.parametrize("path", PATHS)
def test_composed_conv2d_takes_an_image_without_a_batch_axis(path: str) -> None:
    dense, layout = nn.Conv2d(2 * I, 2 * O, 3, dtype=torch.float64), Layout(O, I, (3, 3))
    composed = ComposedConv2d(dense, layout, *factors(layout, 2), path)
    x = torch.randn(2 * I, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(composed(x), composed(x[None])[0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("path", [COMPOSE, FACTORED])
@pytest.mark.parametrize("width", WIDTHS)
def test_composed_linear_equals_the_dense_layer(
    width: int, path: str, leading: tuple[int, ...], bias: bool
) -> None:
    dense, layout = nn.Linear(I * width, O * width, bias=bias, dtype=torch.float64), Layout(O, I)
    x = torch.randn(*leading, I * width, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    assert_equals_dense(ComposedLinear(dense, layout, *factors(layout, width), path), dense, x)


def path_of(layout: Layout, width: int, positions: int, rank: int | None = None) -> str:
    return quickest(Work(layout, rank or layout.rank(1.0, 4), width, positions, positions))


def test_the_quickest_path_of_a_convolution_depends_on_width_and_image() -> None:
    conv = Layout(32, 32, (3, 3))
    assert path_of(conv, 1, 32 * 32 * 32) == COMPOSE  # mixing costs as much as it saves
    assert path_of(conv, 4, 32 * 32 * 32) == FACTORED
    deep = Layout(128, 128, (3, 3))
    assert path_of(deep, 1, 32 * 2 * 2) == COLUMNS  # composing 147,456 weights for 128 positions


def test_a_path_is_chosen_by_its_expected_time() -> None:
    work = Work(Layout(2, 3), rank=2, width=4, inputs=1000, outputs=1000)
    seconds = {path: work.seconds(path) for path in (COMPOSE, FACTORED)}
    assert quickest(work) == min(seconds, key=seconds.__getitem__)


def test_the_work_of_each_path_by_hand() -> None:
    work = Work(Layout(2, 3, (1, 5)), rank=7, width=2, inputs=11, outputs=13)
    dense, weights = 13 * 15 * 4 * 2, 15 * 4 * 2
    assert work.amounts(COMPOSE) == (1, dense, weights * 7, weights)
    basis, mixing = 13 * 15 * 2 * 7, 13 * 4 * 7 * 2
    assert work.amounts(FACTORED) == (1, basis, mixing, 11 * 3 * 2 + 13 * 7 * 2, 15 * 7)
    assert work.amounts(COLUMNS) == (1, basis, mixing, 13 * 15 * 2)


def test_stacked_weights_are_always_composed() -> None:
    assert path_of(Layout(64, 64), 4, 4096, rank=8) == FACTORED
    assert path_of(Layout(64, 64, output_parts=2), 4, 4096, rank=8) == COMPOSE
    assert path_of(Layout(64, 64, input_parts=2), 4, 4096, rank=8) == COMPOSE


def test_stacked_parts_of_torchs_own_layers() -> None:
    lstm = nn.LSTM(4, 4, num_layers=2, bidirectional=True, proj_size=2)
    assert stacked_parts(lstm, "weight_ih_l0") == (4, 1)
    assert stacked_parts(lstm, "weight_ih_l1_reverse") == (4, 2)
    assert stacked_parts(lstm, "weight_hh_l1") == (4, 1)
    assert stacked_parts(lstm, "weight_hr_l0") == (1, 1)
    assert stacked_parts(nn.GRU(4, 4), "bias_ih_l0") == (3, 1)
    assert stacked_parts(nn.RNN(4, 4), "weight_hh_l0") == (1, 1)
    assert stacked_parts(nn.MultiheadAttention(4, 2), "in_proj_bias") == (3, 1)
    assert stacked_parts(nn.Linear(4, 4), "weight") == (1, 1)
    assert stacked_parts(stacked(nn.Linear(4, 12), outputs=3, inputs=2), "weight") == (3, 2)
    assert stacked_parts(nn.LSTMCell(4, 4), "weight_ih") == (4, 1)
    assert stacked_parts(nn.GRUCell(4, 4), "bias_hh") == (3, 1)
    assert stacked_parts(nn.RNNCell(4, 4), "weight_hh") == (1, 1)


def test_a_declaration_adds_to_what_is_known_of_a_layer() -> None:
    lstm = stacked(nn.LSTM(4, 4, num_layers=2, bidirectional=True), inputs=[3, 1])
    assert stacked_parts(lstm, "weight_ih_l0") == (4, (3, 1))
    assert stacked_parts(lstm, "weight_ih_l0_reverse") == (4, (3, 1))
    assert stacked_parts(lstm, "weight_ih_l1") == (4, 2)
    assert stacked_parts(lstm, "weight_hh_l0") == (4, 1)
    cell = stacked(nn.GRUCell(4, 4), inputs=2)
    assert [stacked_parts(cell, name) for name in ("weight_ih", "weight_hh")] == [(3, 2), (3, 1)]
    up = stacked(nn.ConvTranspose2d(6, 4, 2), inputs=[4, 2])  # torch keeps its weight with the inputs first
    assert stacked_parts(up, "weight") == ((4, 2), 1)
    assert stacked_parts(up, "bias") == (1, (4, 2))


@pytest.mark.parametrize("wrong", [0, -1, [], [3, 0], [1.5], "ab", True])
def test_parts_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ModelError, match=r"stacked\(inputs=.*give how many equal parts there are"):
        stacked(nn.Linear(4, 4), inputs=wrong)


def double(module: nn.Module) -> nn.Module:
    return module.double().train()


RECURRENT = {
    "one layer": {"num_layers": 1},
    "two layers": {"num_layers": 2, "batch_first": True},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "no bias": {"num_layers": 1, "bias": False, "bidirectional": True, "batch_first": True},
}


@pytest.mark.parametrize("settings", RECURRENT.values(), ids=RECURRENT.keys())
@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_composed_recurrent_layer_equals_the_dense_one(
    width: int, layer: Callable[..., nn.Module], settings: dict[str, object]
) -> None:
    family = Family(lambda w: layer(2 * w, 3 * w, **settings), width)
    composed, dense = family.composed(width), family.dense(width)
    double(composed.module), double(dense.module)
    composed.load({name: value.double() for name, value in family.initial(seed=1).items()})
    dense.load(family.plain_weights(composed.read()))
    x = torch.randn(4, 3, 2 * width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [local.module(i)[0] for local, i in zip((composed, dense), inputs, strict=True)]
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    assert_gradients_agree(family, composed.parameters, dense.parameters)


def assert_gradients_agree(
    family: Family, composed: dict[str, nn.Parameter], dense: dict[str, nn.Parameter]
) -> None:
    """Every composed parameter's gradient, from the dense weight's, against autograd through compose."""
    for p in family.parameters:
        if p.layout is None:
            torch.testing.assert_close(composed[p.name].grad, dense[p.name].grad)
            continue
        basis, coefficient = (composed[name].detach().requires_grad_() for name in (p.basis, p.coefficient))
        compose(basis, coefficient, p.layout).backward(dense[p.name].grad)
        torch.testing.assert_close(composed[p.basis].grad, basis.grad)
        torch.testing.assert_close(composed[p.coefficient].grad, coefficient.grad)


def test_a_composed_recurrent_layer_follows_its_factors_and_survives_a_copy() -> None:
    family = Family(lambda w: nn.GRU(2 * w, 2 * w), 2)
    local = family.composed(2)
    local.load(family.initial(0))
    x = torch.randn(3, 1, 4, generator=torch.Generator().manual_seed(0))
    twin = copy.deepcopy(local.module)
    before = local.module(x)[0]
    assert torch.equal(twin(x)[0], before)
    with torch.no_grad():
        local.parameters["weight_hh_l0.coefficient"].mul_(2)
    assert not torch.allclose(local.module(x)[0], before)
    assert torch.equal(twin(x)[0], before)
