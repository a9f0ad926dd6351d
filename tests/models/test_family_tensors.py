"""A family's tensors: initial values, ties, factors found again, and the models it refuses."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heroes.errors import ModelError
from heroes.models import char_rnn, cnn, digits_cnn, resnet
from heroes.models.family import Build, Family
from heroes.models.stacks import stacked
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out


def test_initial_tensors_repeat_from_the_seed_and_leave_torchs_generator_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    family = Family(digits_cnn.build, 4)
    first, again, other = family.initial(1), family.initial(1), family.initial(2)
    family.composed(2), family.dense(3)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if first[name].std() > 0)


def test_initial_tensors_have_the_full_width_shapes_and_he_variance() -> None:
    family = Family(cnn.build, 4)
    tensors = family.initial(0)
    assert {n: tuple(t.shape) for n, t in tensors.items()} == family.tensor_shapes(4)
    weight = family.plain_weights(tensors)["4.weight"]
    assert weight.shape == (128, 64, 3, 3)
    assert weight.var().item() == pytest.approx(2 / (9 * 64), rel=0.05)


STARTS = {
    "cnn": cnn.build,
    "digits_cnn": digits_cnn.build,
    "resnet18": resnet.build,
    "char_rnn": char_rnn.build,
}


@pytest.mark.parametrize("build", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_dense_and_composed_models_start_equally_large_in_every_layer(build: Build, width: int) -> None:
    family = Family(build, 4)
    selection = grid_selection(tuple(range(width)), 4)
    dense = cut_out(family.initial_weights(5), family.cut_weights(selection.groups))
    composed = family.plain_weights(cut_out(family.initial(5), family.cut(selection)))
    assert dense.keys() == composed.keys()
    for name, weight in dense.items():
        assert float(composed[name].norm()) == pytest.approx(float(weight.norm()), rel=0.1), name


@pytest.mark.parametrize("name", ["cnn", "digits_cnn", "resnet18"])
def test_built_in_models_start_as_he_has_it_but_for_outputs_norms_and_biases(name: str) -> None:
    module = Family(STARTS[name], 4).module(4)
    *hidden, output = [m for m in module.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    for layer in hidden:
        weight = layer.weight.detach()
        few = weight.numel() < 2000
        assert float(weight.var()) == pytest.approx(2 / weight[0].numel(), rel=0.25 if few else 0.06)
    assert float(output.weight.detach().abs().max()) <= output.weight.shape[1] ** -0.5
    norms = [m for m in module.modules() if isinstance(m, nn.GroupNorm)]
    assert norms
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)


def test_a_models_own_weights_are_where_dense_strategies_start_and_set_the_scale_of_composed_ones() -> None:
    def pretrained(width: int) -> nn.Module:
        module = nn.Sequential(nn.Linear(4, 32 * width), nn.ReLU(), nn.Linear(32 * width, 32 * width))
        nn.init.constant_(module[2].weight, 0.7)
        return module

    family = Family(pretrained, 3)
    assert (family.initial_weights(0)["2.weight"] == 0.7).all()
    composed = family.plain_weights(family.initial(0))["2.weight"]
    assert float(composed.square().mean().sqrt()) == pytest.approx(0.7, rel=0.05)


def test_recurrent_weights_start_with_the_variance_of_the_dense_module() -> None:
    family = Family(lambda w: nn.LSTM(8 * w, 16 * w), 4)
    weight = family.plain_weights(family.initial(0))["weight_hh_l0"]
    assert weight.var().item() == pytest.approx((1 / 64) / 3, rel=0.1)  # uniform on +-1/sqrt(64)


def test_a_family_of_one_width_composes_and_trains() -> None:
    family = Family(digits_cnn.build, 1)
    local = family.composed(1)
    start = family.initial(0)
    local.load(start)
    local.module(torch.randn(2, 1, 8, 8)).sum().backward()
    torch.optim.SGD(local.module.parameters(), lr=0.1).step()
    moved = local.read()
    assert moved.keys() == start.keys()
    assert not torch.equal(moved["3.weight.coefficient"], start["3.weight.coefficient"])


def test_plain_weights_of_plain_tensors_are_themselves() -> None:
    family = Family(digits_cnn.build, 2)
    weights = family.dense(2).read()
    assert family.plain_weights(weights) is weights
    assert {n: tuple(t.shape) for n, t in weights.items()} == family.weight_shapes(2)


def test_factors_found_from_the_weights_compose_to_them() -> None:
    family = Family(lambda w: nn.Sequential(nn.Linear(2, 4 * w), nn.Linear(4 * w, 3 * w)), 2)
    start = family.initial(0)
    moved = {name: value + 0.05 * torch.ones_like(value) for name, value in start.items()}
    weights = family.plain_weights(moved)
    found = family.factors(weights, start)
    assert found.keys() == start.keys()
    torch.testing.assert_close(
        family.plain_weights(found)["1.weight"], weights["1.weight"], atol=1e-3, rtol=0
    )
    assert torch.equal(found["0.weight"], moved["0.weight"])


def test_frozen_weights_stay_frozen() -> None:
    def build(w: int) -> nn.Module:
        model = nn.Sequential(nn.Linear(2 * w, 2 * w), nn.Linear(2 * w, 2 * w))
        model[0].weight.requires_grad_(False)
        return model

    parameters = Family(build, 2).composed(2).parameters
    assert not parameters["0.weight.basis"].requires_grad
    assert parameters["1.weight.basis"].requires_grad


class TiedDecoder(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4 * w)
        self.body = nn.Linear(4 * w, 4 * w)
        self.decoder = nn.Linear(4 * w, 6, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.decoder(self.body(self.embedding(x)))
        return y


class Chain(nn.Module):
    """`first` and `second` share a weight in a way the subclass chooses."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.enter = nn.Linear(2, 4 * w)
        self.first: nn.Module = nn.Linear(4 * w, 4 * w)
        self.second: nn.Module = nn.Linear(4 * w, 4 * w)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(self.enter(x)))
        return y


class SharedWeight(Chain):
    def __init__(self, w: int) -> None:
        super().__init__(w)
        self.second.weight = self.first.weight


class SharedModule(Chain):
    def __init__(self, w: int) -> None:
        super().__init__(w)
        self.second = self.first


class SharedBlock(Chain):
    def __init__(self, w: int) -> None:
        super().__init__(w)
        self.first = self.second = nn.Sequential(nn.Linear(4 * w, 4 * w), nn.Tanh())


class SharedRecurrent(Chain):
    def __init__(self, w: int) -> None:
        super().__init__(w)
        self.first = self.second = nn.RNN(4 * w, 4 * w)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(self.enter(x))[0])[0]
        return y


class TwoNames(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.enter = nn.Linear(2, 4 * w)
        self.a = nn.Parameter(torch.randn(4 * w, 4 * w) / 4)
        self.b = self.a

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.enter(x) @ self.a @ self.b
        return y


TIED = [TiedDecoder, SharedWeight, SharedModule, SharedBlock, SharedRecurrent, TwoNames]


@pytest.mark.parametrize("build", TIED, ids=lambda c: c.__name__)
def test_tied_weights_stay_tied_through_a_step(build: Callable[[int], nn.Module]) -> None:
    """The composed model has as many tensors as the family, and after a step equals the dense tied model with
    its weights.
    """
    family = Family(build, 2)
    composed, dense = family.composed(2), family.dense(2)
    composed.load(family.initial(0))
    x = (
        torch.arange(6)
        if build is TiedDecoder
        else torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    )
    assert {id(p) for p in composed.module.parameters()} == {id(p) for p in composed.parameters.values()}
    assert set(composed.parameters) == set(family.tensor_shapes(2))
    before = composed.module(x).detach()
    composed.module(x).square().sum().backward()
    torch.optim.SGD(composed.module.parameters(), lr=1e-3).step()
    after = composed.module(x).detach()
    assert not torch.allclose(after, before)
    dense.load(family.plain_weights(composed.read()))
    torch.testing.assert_close(after, dense.module(x).detach())


def linear(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs))


class Attends(nn.Module):
    def __init__(self, w: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4 * w, heads)


REFUSED: dict[str, tuple[Callable[[int], nn.Module], str]] = {
    "affine in the width": (
        lambda w: linear(2, 4 * w + 1),
        "parameter '0.weight' has shape (5, 2) at width 1 and (9, 2)",
    ),
    "quadratic": (
        lambda w: linear(2, 4 * w * w),
        "parameter '0.weight' has shape (4, 2) at width 1 and (16, 2)",
    ),
    "stops growing": (lambda w: linear(2, 4 * min(w, 2)), "at width 4, where (16, 2) was expected"),
    "running statistics": (
        lambda w: nn.Sequential(nn.Conv2d(1, 2 * w, 3), nn.InstanceNorm2d(2 * w, track_running_stats=True)),
        "buffer '1.running_mean' keeps running statistics",
    ),
    "composed convolution with fixed groups": (
        lambda w: nn.Sequential(nn.Conv2d(4 * w, 4 * w, 3, groups=2)),
        "parameter '0.weight' belongs to a convolution with 2 groups at every width",
    ),
    "first convolution with fixed groups": (
        lambda w: nn.Sequential(nn.Conv2d(4, 4 * w, 3, groups=2)),
        "parameter '0.weight' belongs to a convolution with 2 groups at every width",
    ),
    "fixed heads": (
        lambda w: Attends(w, 2),
        "parameter 'attention.in_proj_weight' belongs to attention with 2 heads at width 1",
    ),
    "more parameters when wider": (
        lambda w: nn.Sequential(*(nn.Linear(2 * w, 2 * w) for _ in range(w))),
        "parameter '1.bias' exists at width 1 or 2 but not at both",
    ),
    "more axes when wider": (
        lambda w: nn.ParameterDict({"p": nn.Parameter(torch.zeros([2] * w))}),
        "parameter 'p' has 1 axes at width 1 and 2 at width 2",
    ),
    "three scaled axes": (
        lambda w: nn.Bilinear(2 * w, 2 * w, 2 * w),
        "parameter 'weight' scales along axes (0, 1, 2)",
    ),
    "parts that do not divide": (
        lambda w: nn.Sequential(stacked(nn.Linear(2 * w, 4 * w), outputs=3)),
        "parameter '0.weight': axis 0 has 4 entries at width 1, not a multiple of its 3 parts",
    ),
    "unequal parts that do not add up": (
        lambda w: nn.Sequential(stacked(nn.Linear(6 * w, 2), inputs=[4 * w, 3 * w])),
        "parameter '0.weight': axis 1 has 6 entries at width 1, which parts of sizes 4, 3 do not add up to",
    ),
    "lazy": (lambda w: nn.Sequential(nn.LazyLinear(4 * w)), "parameter '0.weight' has no shape yet"),
    "nothing scales": (lambda w: linear(2, 2), "no parameter changes with the width"),
    "not a module": (lambda w: [w], "build(width=1) must return a torch.nn.Module, not list"),  # type: ignore[arg-type, return-value]
    "raises": (lambda w: linear(2, 1 // (2 - w)), "build(width=2) failed: ZeroDivisionError"),
}


@pytest.mark.parametrize(("build", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_model_that_cannot_be_cut_is_refused_by_name(
    build: Callable[[int], nn.Module], sentence: str
) -> None:
    with pytest.raises(ModelError, match=re.escape(sentence)):
        Family(build, 4)


def test_widths_may_differ_in_modules_without_parameters() -> None:
    family = Family(lambda w: nn.Sequential(nn.Linear(2 * w, 2 * w), *([nn.Dropout()] if w > 1 else [])), 4)
    assert [p.kind for p in family.parameters] == ["composed", "grouped"]


def test_groups_and_heads_that_grow_with_the_width_are_accepted() -> None:
    assert Family(lambda w: nn.Conv2d(4 * w, 4 * w, 3, groups=2 * w), 4).parameters[0].kind == "grouped"
    assert Family(lambda w: Attends(w, 2 * w), 4).parameters[0].kind == "composed"
