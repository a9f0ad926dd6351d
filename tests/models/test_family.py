"""A family is read by its shapes: kinds, group meaning, and the composed module beside the dense one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heroes.models import digits_cnn
from heroes.models.family import Family
from heroes.models.layers import ComposedConv2d, ComposedLinear
from heroes.models.stacks import stacked
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out
from heroes.slices.overlays import overlay_mean

TIME = 5


class Residual(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4 * w, 3, padding=1)
        self.depthwise = nn.Conv2d(4 * w, 4 * w, 3, padding=1, groups=4 * w)
        self.norm = nn.GroupNorm(w, 4 * w)
        self.body = nn.Conv2d(4 * w, 4 * w, 3, padding=1, stride=1)
        self.hidden = nn.Linear(4 * w * 16, 3 * w)  # after a channel-major flatten of 4x4
        self.head = nn.Linear(3 * w, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.body(self.norm(self.depthwise(x)).relu())
        y: Tensor = self.head(self.hidden(x.flatten(1)).relu())
        return y


class Text(nn.Module):
    def __init__(self, w: int, layer: Callable[..., nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 2 * w)
        self.recurrent = layer(2 * w, 3 * w, num_layers=2, batch_first=True)
        self.head = nn.Linear(3 * w, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.recurrent(self.embedding(x))[0][:, -1])
        return y


class Attention(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4 * w)
        self.attention = nn.MultiheadAttention(4 * w, w, batch_first=True)
        self.norm = nn.LayerNorm(4 * w)
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        y: Tensor = self.head(self.norm(x + self.attention(x, x, x)[0]).mean(1))
        return y


class FusedAttention(nn.Module):
    """A user's own fused projection: Q, K and V stacked on the output axis."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.heads = w
        self.embedding = nn.Embedding(7, 4 * w)
        self.qkv = stacked(nn.Linear(4 * w, 3 * 4 * w), outputs=3)
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, 4)).transpose(1, 2)
            for part in self.qkv(self.embedding(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        y: Tensor = self.head(mixed.mean(1))
        return y


class OwnParameter(nn.Module):
    """A parameter of the user's own beside a child that is swapped."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(3 * w, 3 * w) / 3)
        self.scale = nn.Parameter(torch.ones(3 * w))
        self.temperature = nn.Parameter(torch.ones(()))
        self.child = nn.Linear(3 * w, 3 * w)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.child(x @ self.mix * self.scale) / self.temperature
        return y


def transformer(w: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(4 * w, w, 6 * w, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(7, 4 * w), layer, nn.Flatten(), nn.Linear(TIME * 4 * w, 3))


def conv1d(w: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 3 * w, 3), nn.Tanh(), nn.Conv1d(3 * w, 2 * w, 3, padding=1), nn.AdaptiveAvgPool1d(1)
    )


def images(_: int) -> Tensor:
    return torch.randn(2, 1, 4, 4, dtype=torch.float64)


def words(_: int) -> Tensor:
    return torch.randint(7, (2, TIME))


def features(size: int) -> Callable[[int], Tensor]:
    return lambda w: torch.randn(2, size * w, dtype=torch.float64)


FAMILIES: dict[str, tuple[Callable[[int], nn.Module], Callable[[int], Tensor]]] = {
    "residual": (Residual, images),
    "rnn": (lambda w: Text(w, nn.RNN), words),
    "lstm": (Text, words),
    "gru": (lambda w: Text(w, nn.GRU), words),
    "attention": (Attention, words),
    "fused attention": (FusedAttention, words),
    "transformer": (transformer, words),
    "own parameter": (OwnParameter, features(3)),
    "root linear": (lambda w: nn.Linear(3 * w, 2 * w), features(3)),
    "conv1d": (conv1d, lambda _: torch.randn(2, 2, 9, dtype=torch.float64)),
    "digits": (digits_cnn.build, lambda _: torch.randn(2, 1, 8, 8, dtype=torch.float64)),
    "batch norm without running statistics": (
        lambda w: nn.Sequential(
            nn.Linear(4, 3 * w), nn.BatchNorm1d(3 * w, track_running_stats=False), nn.Linear(3 * w, 3 * w)
        ),
        lambda _: torch.randn(5, 4, dtype=torch.float64),
    ),
}
EVERY_FAMILY = pytest.mark.parametrize(("build", "inputs"), FAMILIES.values(), ids=FAMILIES.keys())


def kinds(build: Callable[[int], nn.Module]) -> dict[str, str]:
    return {p.name: p.kind for p in Family(build, 4).parameters}


def test_kinds_in_a_residual_convolutional_network() -> None:
    found = kinds(Residual)
    assert {n for n, k in found.items() if k == "composed"} == {"body.weight", "hidden.weight"}
    assert {n for n, k in found.items() if k == "shared"} == {"head.bias"}
    grouped = {
        "stem.weight",
        "depthwise.weight",
        "depthwise.bias",
        "norm.weight",
        "norm.bias",
        "body.bias",
        "head.weight",
    }
    assert grouped <= {n for n, k in found.items() if k == "grouped"}
    axes = {p.name: p.axis for p in Family(Residual, 4).parameters}
    assert (axes["depthwise.weight"], axes["head.weight"]) == (0, 1)


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_kinds_in_a_recurrent_network(layer: Callable[..., nn.Module]) -> None:
    found = kinds(lambda w: Text(w, layer))
    weights = {f"recurrent.weight_{side}_l{n}" for side in ("ih", "hh") for n in (0, 1)}
    assert {n for n, k in found.items() if k == "composed"} == weights
    assert found["embedding.weight"] == found["recurrent.bias_ih_l1"] == found["head.weight"] == "grouped"


def test_kinds_in_attention_transformer_and_own_parameters() -> None:
    assert {n for n, k in kinds(Attention).items() if k == "composed"} == {
        "attention.in_proj_weight",
        "attention.out_proj.weight",
    }
    found = kinds(transformer)
    composed = {
        "1.self_attn.in_proj_weight",
        "1.self_attn.out_proj.weight",
        "1.linear1.weight",
        "1.linear2.weight",
    }
    assert {n for n, k in found.items() if k == "composed"} == composed
    assert found["1.norm1.weight"] == "grouped"
    own = kinds(OwnParameter)
    assert (own["mix"], own["scale"], own["temperature"], own["child.weight"]) == (
        "composed",
        "grouped",
        "shared",
        "composed",
    )
    assert kinds(FAMILIES["root linear"][0]) == {"weight": "composed", "bias": "grouped"}
    assert kinds(conv1d)["2.weight"] == "composed"


def test_linear_and_conv2d_are_replaced_where_no_torch_code_reads_their_weight() -> None:
    residual = Family(Residual, 2).composed(2).module
    assert isinstance(residual.body, ComposedConv2d)
    assert isinstance(residual.hidden, ComposedLinear)
    assert isinstance(Family(OwnParameter, 2).composed(2).module.child, ComposedLinear)
    assert isinstance(Family(FAMILIES["root linear"][0], 2).composed(2).module, ComposedLinear)
    assert isinstance(Family(transformer, 2).composed(2).module[1].linear1, nn.Linear)


@EVERY_FAMILY
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("training", [True, False])
def test_the_composed_module_equals_the_dense_one(
    build: Callable[[int], nn.Module], inputs: Callable[[int], Tensor], width: int, training: bool
) -> None:
    family = Family(build, 3)
    whole = {name: value.double() for name, value in family.initial(3).items()}
    part = cut_out(whole, family.cut(grid_selection(tuple(range(3 - width, 3)), 3)))
    composed, dense = family.composed(width), family.dense(width)
    composed.module.double().train(training), dense.module.double().train(training)
    composed.load(part)
    dense.load(family.plain_weights(part))
    torch.manual_seed(0)
    x = inputs(width)
    torch.testing.assert_close(composed.module(x), dense.module(x))
    with torch.no_grad():
        torch.testing.assert_close(composed.module(x), dense.module(x))


@EVERY_FAMILY
def test_every_factor_gets_a_gradient(
    build: Callable[[int], nn.Module], inputs: Callable[[int], Tensor]
) -> None:
    local = Family(build, 2).composed(2)
    local.load(Family(build, 2).initial(0))
    local.module.double()
    torch.manual_seed(0)
    local.module(inputs(2)).square().sum().backward()
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for n, p in local.parameters.items() if "bias" not in n
    )


def same_units(
    full: Tensor, axes: dict[int, tuple[int, int]], groups: tuple[int, ...], max_width: int
) -> Tensor:
    """Cut a dense full-width tensor by hidden units; per axis (parts, units of one part and group)."""
    for axis, (parts, unit) in axes.items():
        index = [
            part * max_width * unit + g * unit + u
            for part in range(parts)
            for g in groups
            for u in range(unit)
        ]
        full = full.index_select(axis, torch.tensor(index))
    return full


@pytest.mark.parametrize("groups", [(1,), (0, 2), (1, 2)])
@pytest.mark.parametrize(("layer", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_groups_pick_the_same_hidden_units_in_every_gate(
    layer: Callable[..., nn.Module], gates: int, groups: tuple[int, ...]
) -> None:
    family = Family(lambda w: Text(w, layer), 3)
    whole = family.initial(0)
    full = family.plain_weights(whole)
    part = family.plain_weights(cut_out(whole, family.cut(grid_selection(groups, 3))))
    rows = {0: (gates, 3)}
    meaning = {
        "embedding.weight": {1: (1, 2)},
        "recurrent.weight_ih_l0": rows | {1: (1, 2)},
        "recurrent.weight_hh_l0": rows | {1: (1, 3)},
        "recurrent.weight_ih_l1": rows | {1: (1, 3)},
        "recurrent.bias_hh_l1": rows,
        "head.weight": {1: (1, 3)},
        "head.bias": {},
    }
    for name, axes in meaning.items():
        torch.testing.assert_close(part[name], same_units(full[name], axes, groups, 3))


def test_groups_pick_both_directions_and_all_of_query_key_and_value() -> None:
    groups = (0, 2)
    both = Family(lambda w: nn.GRU(2 * w, 3 * w, num_layers=2, bidirectional=True), 3)
    fused = Family(FusedAttention, 3)
    own = Family(Attention, 3)
    for family, name, axes in [
        (both, "weight_ih_l1", {0: (3, 3), 1: (2, 3)}),
        (fused, "qkv.weight", {0: (3, 4), 1: (1, 4)}),
        (fused, "qkv.bias", {0: (3, 4)}),
        (own, "attention.in_proj_weight", {0: (3, 4), 1: (1, 4)}),
        (own, "attention.in_proj_bias", {0: (3, 4)}),
    ]:
        whole = family.initial(0)
        part = family.plain_weights(cut_out(whole, family.cut(grid_selection(groups, 3))))
        torch.testing.assert_close(part[name], same_units(family.plain_weights(whole)[name], axes, groups, 3))


@pytest.mark.parametrize("groups", [(1,), (0, 2)])
@pytest.mark.parametrize(("cell", "gates"), [(nn.RNNCell, 1), (nn.GRUCell, 3), (nn.LSTMCell, 4)])
def test_groups_pick_the_same_hidden_units_in_every_gate_of_a_cell(
    cell: Callable[..., nn.Module], gates: int, groups: tuple[int, ...]
) -> None:
    family = Family(lambda w: cell(2 * w, 3 * w), 3)
    whole = family.initial(0)
    full = family.plain_weights(whole)
    part = family.plain_weights(cut_out(whole, family.cut(grid_selection(groups, 3))))
    rows = {0: (gates, 3)}
    for name, axes in {
        "weight_ih": rows | {1: (1, 2)},
        "weight_hh": rows | {1: (1, 3)},
        "bias_hh": rows,
    }.items():
        torch.testing.assert_close(part[name], same_units(full[name], axes, groups, 3))


def test_groups_pick_their_units_in_parts_of_unequal_sizes() -> None:
    """A norm and a layer that read three units, then one, of each group."""

    def build(w: int) -> nn.Module:
        norm = stacked(nn.BatchNorm1d(4 * w, track_running_stats=False), outputs=[3 * w, w])
        return nn.Sequential(norm, stacked(nn.Linear(4 * w, 2 * w), inputs=[3 * w, w]))

    family = Family(build, 3)
    whole = family.initial(0)
    whole["0.weight"] = torch.arange(12.0)
    part = family.plain_weights(cut_out(whole, family.cut(grid_selection((0, 2), 3))))
    units = [0, 1, 2, 6, 7, 8, 9, 11]
    assert part["0.weight"].tolist() == units
    expected = family.plain_weights(whole)["1.weight"][[0, 1, 4, 5]][:, units]
    torch.testing.assert_close(part["1.weight"], expected)
    weights = family.cut_weights((0, 2))["1.weight"].axes
    assert [indices.tolist() for _, indices in weights] == [[0, 1, 4, 5], units]


@EVERY_FAMILY
def test_cutting_then_overlaying_changes_nothing(
    build: Callable[[int], nn.Module], inputs: Callable[[int], Tensor]
) -> None:
    family = Family(build, 3)
    whole = family.initial(0)
    for groups in [(0,), (0, 2), (0, 1, 2)]:
        cut = family.cut(grid_selection(groups, 3))
        part = cut_out(whole, cut)
        assert {n: tuple(t.shape) for n, t in part.items()} == family.tensor_shapes(len(groups))
        again = overlay_mean(whole, [(cut, part), (cut, part)])
        assert all(torch.equal(again[name], whole[name]) for name in whole)
