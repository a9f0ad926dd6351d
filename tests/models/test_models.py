"""The models that come with heroes: their sizes, and that composition holds for each."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from heroes.models import MODELS, SAMPLES
from heroes.models.family import COMPOSED, Family
from heroes.models.sizes import by_layer, by_width
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out

VARIANTS = {
    "digits_cnn": {},
    "cnn": {},
    "resnet18": {"small_images": True, "classes": 10},
    "char_rnn": {},
    "char_rnn-lstm": {"cell": "lstm"},
    "char_rnn-gru": {"cell": "gru", "layers": 2},
    "vit": {"depth": 2},
    "mlp": {"classes": 3},
    "text_cnn": {"classes": 3},
}


def family(variant: str, max_width: int = 4) -> Family:
    name = variant.partition("-")[0]
    options = VARIANTS[variant] if name == "digits_cnn" else {**VARIANTS[variant], "max_width": max_width}
    return Family(partial(MODELS[name], **options), max_width)


def sample(variant: str) -> torch.Tensor:
    name = variant.partition("-")[0]
    if name == "resnet18":
        return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    inputs = SAMPLES[name](3)
    return inputs + torch.randint(0, 9, inputs.shape, generator=torch.Generator().manual_seed(0)).to(
        inputs.dtype
    )


def parameters(name: str, **options: object) -> int:
    return sum(p.numel() for p in MODELS[name](4, **options).parameters())


def test_resnet18_has_the_public_number_of_parameters() -> None:
    assert parameters("resnet18", classes=1000) == pytest.approx(11.69e6, rel=0.002)


def test_the_cnn_has_the_papers_channels() -> None:
    shapes = [tuple(p.shape) for p in MODELS["cnn"](4).parameters() if p.dim() == 4]
    assert shapes == [(64, 3, 3, 3), (128, 64, 3, 3), (128, 128, 3, 3)]


def test_the_character_network_has_512_units_at_full_width() -> None:
    shapes = {name: tuple(p.shape) for name, p in MODELS["char_rnn"](4).named_parameters()}
    assert shapes["embedding.weight"] == (80, 512)
    assert shapes["recurrent.weight_hh_l0"] == (512, 512)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_composed_model_equals_the_dense_one(variant: str, width: int) -> None:
    found = family(variant)
    tensors = cut_out(found.initial(0), found.cut(grid_selection(tuple(range(width)), 4)))
    composed, dense = found.composed(width), found.dense(width)
    composed.load(tensors)
    dense.load(found.plain_weights(tensors))
    inputs = sample(variant)
    assert torch.allclose(composed.module.eval()(inputs), dense.module.eval()(inputs), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_composed_model_learns_a_batch(variant: str) -> None:
    found = family(variant)
    model = found.composed(2)
    model.load(cut_out(found.initial(0), found.cut(grid_selection((1, 3), 4))))
    inputs = sample(variant)
    targets = torch.arange(len(inputs))
    optimiser = torch.optim.SGD(model.parameters.values(), 0.01)
    losses = []
    for _ in range(8):
        optimiser.zero_grad()
        loss = F.cross_entropy(model.module(inputs), targets)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_without_normalisation_no_norm_is_left() -> None:
    for name in ("digits_cnn", "cnn", "resnet18"):
        assert not any(isinstance(m, torch.nn.GroupNorm) for m in MODELS[name](2, norm="none").modules())


@pytest.mark.parametrize("name", ["digits_cnn", "cnn", "resnet18", "mlp"])
def test_narrow_models_with_a_norm_over_the_batch_are_parts_of_wide_ones(name) -> None:
    """Channels are normalised one by one, so that the first of a wide model do not see the others."""
    models = {width: MODELS[name](width, norm="batch") for width in (1, 2)}
    norms = {w: [m for m in model.modules() if isinstance(m, _BatchNorm)] for w, model in models.items()}
    assert norms[1]
    assert len(norms[1]) == len(norms[2])
    for narrow, wide in zip(norms[1], norms[2], strict=True):
        inputs = torch.randn(6, wide.num_features, *(() if name == "mlp" else (3, 3)))
        kept = narrow.num_features
        torch.testing.assert_close(wide(inputs)[:, :kept], narrow(inputs[:, :kept]))


def test_sizes_add_up() -> None:
    found = family("cnn")
    inputs, targets = SAMPLES["cnn"](2), torch.zeros(2, dtype=torch.int64)
    widths, layers = by_width(found, inputs, targets), by_layer(found, inputs, targets)
    assert [w.width for w in widths] == [1, 2, 3, 4]
    assert widths[-1].dense_parameters == sum(layer.dense_parameters for layer in layers) == parameters("cnn")
    assert widths[-1].composed_parameters == sum(layer.composed_parameters for layer in layers)
    assert widths[-1].dense_flops == sum(layer.dense_flops or 0 for layer in layers)
    assert widths[-1].composed_flops == sum(layer.composed_flops or 0 for layer in layers)
    second = next(layer for layer in layers if layer.kind == COMPOSED)
    # forward, and backward to weights and to inputs: 3 * 2 * batch * positions * weights
    assert second.dense_flops == 3 * 2 * 2 * 16 * 16 * second.dense_parameters


@pytest.mark.parametrize("pool", [(2, 2, 0), (3, 2, 1)])
def test_pooling_before_the_relu_gives_the_same_bits_both_ways(pool: tuple[int, int, int]) -> None:
    inputs = torch.randn(4, 6, 9, 9, generator=torch.Generator().manual_seed(0)).round(
        decimals=1
    )  # with ties
    found = []
    for one, other in [(F.relu, F.max_pool2d), (F.max_pool2d, F.relu)]:
        x = inputs.clone().requires_grad_()
        y = x
        for layer in (one, other):
            y = layer(y, *pool) if layer is F.max_pool2d else layer(y)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        found.append((y.detach(), x.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
