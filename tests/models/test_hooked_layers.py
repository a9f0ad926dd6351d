"""What a user hung on a layer stays there: the composed model is the function that is handed out."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from heroes.models.family import Family
from heroes.models.layers import ComposedConv2d, ComposedLinear, is_plain
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out


def doubled(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return layer


def shifted(layer: nn.Module) -> nn.Module:
    layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    return layer


def pruned(layer: nn.Module) -> nn.Module:
    prune.l1_unstructured(layer, "weight", 0.5)
    return layer


def other_forward(layer: nn.Module) -> nn.Module:
    layer.forward = lambda x: nn.functional.linear(x, layer.weight, layer.bias).sin()  # type: ignore[method-assign]
    return layer


def low_rank(layer: nn.Module) -> nn.Module:
    """A parameter beside the weight, used by a hook."""
    layer.register_parameter("extra", nn.Parameter(torch.randn(3)))
    layer.register_forward_hook(lambda module, inputs, outputs: outputs * module.extra.sum())
    return layer


HUNG: dict[str, Callable[[nn.Module], nn.Module]] = {
    "forward hook": doubled,
    "forward pre-hook": shifted,
    "old weight norm": weight_norm,
    "new weight norm": parametrizations.weight_norm,
    "old spectral norm": spectral_norm,
    "new spectral norm": parametrizations.spectral_norm,
    "pruned": pruned,
    "a forward of its own": other_forward,
    "a parameter more": low_rank,
}


@pytest.mark.parametrize("hang", HUNG.values(), ids=HUNG.keys())
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_a_layer_keeps_what_hangs_on_it(hang: Callable[[nn.Module], nn.Module], width: int) -> None:
    def build(w: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(4, 4 * w), nn.Tanh(), hang(nn.Linear(4 * w, 6 * w)), nn.Linear(6 * w, 3)
        )

    family = Family(build, 3)
    part = cut_out(family.initial(1), family.cut(grid_selection(tuple(range(width)), 3)))
    composed, dense = family.composed(width), family.dense(width)
    composed.load(part)
    dense.load(family.plain_weights(part))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(composed.module.eval()(x), dense.module.eval()(x), rtol=1e-5, atol=1e-4)
    composed.module.train()(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in composed.parameters.values())


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_only_a_plain_layer_is_replaced() -> None:
    assert is_plain(nn.Linear(2, 2))
    assert is_plain(nn.Conv2d(2, 2, 3, bias=False))
    assert not any(is_plain(hang(nn.Linear(4, 4))) for hang in HUNG.values())
    named = nn.Linear(2, 2)
    named.width = 3  # type: ignore[assignment]
    assert not is_plain(named)


class Reads(nn.Module):
    """Reads what its layers are."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4 * w, 3)
        self.body = nn.Conv2d(4 * w, 4 * w, 3, stride=2, padding=1, padding_mode="reflect")
        self.hidden = nn.Linear(4 * w, 3 * w)
        self.hidden.note = "mine"  # type: ignore[assignment]
        self.head = nn.Linear(3 * w, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x)).mean((2, 3)).view(-1, self.hidden.in_features)
        x = nn.functional.linear(x, self.hidden.weight, self.hidden.bias) * self.body.weight.norm()
        y: Tensor = self.head(x[:, : self.hidden.out_features])
        return y


def test_a_model_may_read_what_its_layers_are() -> None:
    family = Family(Reads, 2)
    composed, dense = family.composed(2), family.dense(2)
    composed.load(family.initial(0))
    dense.load(family.plain_weights(composed.read()))
    x = torch.randn(3, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(composed(x), dense(x))
    body, hidden = composed.module.body, composed.module.hidden
    assert isinstance(body, ComposedConv2d)
    assert isinstance(hidden, ComposedLinear)
    for layer, names in [
        (body, "in_channels out_channels kernel_size stride padding dilation groups padding_mode transposed"),
        (hidden, "in_features out_features note"),
    ]:
        plain = dense.module.get_submodule("body" if layer is body else "hidden")
        assert [getattr(layer, n) for n in names.split()] == [getattr(plain, n) for n in names.split()]
        torch.testing.assert_close(layer.weight, plain.weight)
        torch.testing.assert_close(layer.bias, plain.bias)
