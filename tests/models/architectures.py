"""Models as users write them, and what comes of each; docs/models.md has the same table."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import heroes
from heroes.models import MODELS

Build = Callable[[int], nn.Module]


def images(count: int = 6, size: int = 8) -> Tensor:
    return torch.randn(count, 1, size, size, generator=torch.Generator().manual_seed(0))


def rows(count: int = 6) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(0))


def words(count: int = 6) -> Tensor:
    return torch.randint(7, (count, 5), generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Case:
    """A model, what it reads, and what comes of it: a remark or an error with these words, or neither."""

    build: Build
    inputs: Callable[[], Tensor] = images
    warns: str = ""
    refused: str = ""

    @property
    def outcome(self) -> str:
        return "refused" if self.refused else "warns" if self.warns else "works"


def mlp(w: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 8 * w),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(8 * w, 8 * w),
        nn.ReLU(),
        nn.Linear(8 * w, 3),
    )


def around(layer: Callable[[nn.Module], nn.Module]) -> Build:
    """A perceptron whose hidden layer has something hung on it."""
    return lambda w: nn.Sequential(
        nn.Linear(4, 4 * w), nn.Tanh(), layer(nn.Linear(4 * w, 6 * w)), nn.Tanh(), nn.Linear(6 * w, 3)
    )


def lenet(w: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6 * w, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6 * w, 16 * w, 3), nn.Tanh(),
        nn.Flatten(), nn.Linear(16 * w * 4, 12 * w), nn.Tanh(), nn.Linear(12 * w, 3),
    )  # fmt: skip


def vgg(w: int) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 1
    for size in (4, 4, 0, 8, 8, 0):
        if size:
            layers += [nn.Conv2d(channels, size * w, 3, padding=1), nn.ReLU()]
            channels = size * w
        else:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * w, 3))


def normed(norm: Callable[[int, int], nn.Module]) -> Build:
    return lambda w: nn.Sequential(
        nn.Conv2d(1, 4 * w, 3), norm(w, 4 * w), nn.ReLU(),
        nn.Conv2d(4 * w, 8 * w, 3), norm(w, 8 * w), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * w, 3),
    )  # fmt: skip


class ResNet(nn.Module):
    """A shortcut as it is, and one through a convolution."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4 * w, 3, padding=1)
        self.first = nn.Sequential(nn.GroupNorm(w, 4 * w), nn.ReLU(), nn.Conv2d(4 * w, 4 * w, 3, padding=1))
        self.second = nn.Sequential(nn.ReLU(), nn.Conv2d(4 * w, 8 * w, 3, stride=2, padding=1))
        self.shortcut = nn.Conv2d(4 * w, 8 * w, 1, stride=2)
        self.head = nn.Linear(8 * w, 3)
        nn.init.zeros_(self.first[-1].weight)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        x = x + self.first(x)
        return self.head((self.second(x) + self.shortcut(x)).mean((2, 3)))


class DenseNet(nn.Module):
    """Every layer reads all before it: 4, then 4 + 3, then 4 + 3 + 3 channels for each width."""

    def __init__(self, w: int, declared: bool) -> None:
        super().__init__()
        says = heroes.stacked if declared else lambda layer, **_: layer
        self.stem = nn.Conv2d(1, 4 * w, 3, padding=1)
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        sizes = [4 * w]
        for _ in range(2):
            norm = nn.BatchNorm2d(sum(sizes), track_running_stats=False)
            self.norms.append(says(norm, outputs=list(sizes)))
            self.layers.append(says(nn.Conv2d(sum(sizes), 3 * w, 3, padding=1), inputs=list(sizes)))
            sizes.append(3 * w)
        self.head = says(nn.Linear(sum(sizes), 3), inputs=list(sizes))

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.cat([x, layer(norm(x).relu())], 1)
        return self.head(x.mean((2, 3)))


class Inception(nn.Module):
    """Branches of unequal sizes, one after the other."""

    def __init__(self, w: int, declared: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4 * w, 3, padding=1)
        self.branches = nn.ModuleList(
            [
                nn.Conv2d(4 * w, 2 * w, 1),
                nn.Conv2d(4 * w, 4 * w, 3, padding=1),
                nn.Conv2d(4 * w, w, 5, padding=2),
            ]
        )
        merge = nn.Conv2d(7 * w, 4 * w, 1)
        self.merge = heroes.stacked(merge, inputs=[2 * w, 4 * w, w]) if declared else merge
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x).relu()
        x = self.merge(torch.cat([branch(x).relu() for branch in self.branches], 1))
        return self.head(x.mean((2, 3)))


def mobilenet(w: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4 * w, 3, padding=1), nn.ReLU6(), nn.Conv2d(4 * w, 4 * w, 3, padding=1, groups=4 * w),
        nn.ReLU6(), nn.Conv2d(4 * w, 8 * w, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * w, 3),
    )  # fmt: skip


class SqueezeExcite(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8 * w, 3)
        self.squeeze, self.excite = nn.Linear(8 * w, 2 * w), nn.Linear(2 * w, 8 * w)
        self.body, self.head = nn.Conv2d(8 * w, 8 * w, 3), nn.Linear(8 * w, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        x = x * self.excite(self.squeeze(x.mean((2, 3))).relu()).sigmoid()[:, :, None, None]
        return self.head(self.body(x).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, w: int, declared: bool) -> None:
        super().__init__()
        self.down, self.deep = (
            nn.Conv2d(1, 4 * w, 3, padding=1),
            nn.Conv2d(4 * w, 8 * w, 3, stride=2, padding=1),
        )
        self.up = nn.ConvTranspose2d(8 * w, 6 * w, 2, stride=2)
        join = nn.Conv2d(10 * w, 4 * w, 3, padding=1)
        self.join = heroes.stacked(join, inputs=[4 * w, 6 * w]) if declared else join
        self.out = nn.Conv2d(4 * w, 3, 1)

    def forward(self, x: Tensor) -> Any:
        skip = self.down(x).relu()
        joined = torch.cat([skip, self.up(self.deep(skip).relu())], 1)
        return self.out(self.join(joined).relu()).mean((2, 3))


class Encoder(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4 * w)
        self.position = nn.Parameter(torch.zeros(5, 4 * w))
        layer = nn.TransformerEncoderLayer(4 * w, w, 8 * w, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.encoder(self.embedding(x) + self.position).mean(1))


class Decoder(nn.Module):
    """A fused projection of its own, GPT's way."""

    def __init__(self, w: int, declared: bool) -> None:
        super().__init__()
        self.heads = w
        self.embedding, self.norm = nn.Embedding(7, 4 * w), nn.LayerNorm(4 * w)
        qkv = nn.Linear(4 * w, 12 * w)
        self.qkv = heroes.stacked(qkv, outputs=3) if declared else qkv
        self.out, self.head = nn.Linear(4 * w, 4 * w), nn.Linear(4 * w, 3)
        self.register_buffer("mask", torch.ones(5, 5, dtype=torch.bool).tril())

    def forward(self, x: Tensor) -> Any:
        x = self.embedding(x)
        q, k, v = (
            p.unflatten(-1, (self.heads, 4)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, self.mask).transpose(1, 2).flatten(2)
        return self.head((x + self.out(mixed))[:, -1])


class ViT(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 4 * w, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, 4 * w))
        self.position = nn.Parameter(torch.randn(1, 5, 4 * w) / 10)
        self.block = nn.TransformerEncoderLayer(
            4 * w, 2 * w, 8 * w, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.norm, self.head = nn.LayerNorm(4 * w), nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.norm(self.block(x))[:, 0])


class Recurrent(nn.Module):
    def __init__(
        self, w: int, kind: Callable[..., nn.Module], both: bool = False, declared: bool = True
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3 * w)
        self.layer = kind(3 * w, 4 * w, num_layers=2, batch_first=True, bidirectional=both)
        head = nn.Linear(4 * w * (1 + both), 3)
        self.head = heroes.stacked(head, inputs=2) if both and declared else head

    def forward(self, x: Tensor) -> Any:
        return self.head(self.layer(self.embedding(x))[0][:, -1])


class Cell(nn.Module):
    def __init__(self, w: int, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(7, 3 * w), kind(3 * w, 4 * w)
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        state = None
        for step in self.embedding(x).unbind(1):
            state = self.cell(step, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Tied(nn.Module):
    """What reads words also says them."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(7, 4 * w), nn.Linear(4 * w, 4 * w)
        self.out = nn.Linear(4 * w, 7, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Any:
        return self.out(self.body(self.embedding(x).mean(1)).tanh())


class Listed(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        sizes = [4, 4 * w, 4 * w, 3]
        self.weights = nn.ParameterList(torch.randn(a, b) / a**0.5 for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = (x @ weight).tanh()
        return x


class Einsum(nn.Module):
    """Attention in einsum, with a parameter of three axes for each head."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4 * w)
        self.query, self.key = (nn.Parameter(torch.randn(2 * w, 4 * w, 3) / 3) for _ in range(2))
        self.value = nn.Parameter(torch.randn(2 * w, 4 * w, 3) / 3)
        self.out, self.head = nn.Parameter(torch.randn(2 * w, 4 * w, 3) / 3), nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.embedding(x)
        q, k, v = (torch.einsum("bte,hed->bhtd", x, m) for m in (self.query, self.key, self.value))
        mixed = torch.einsum("bhqk,bhkd->bhqd", (torch.einsum("bhqd,bhkd->bhqk", q, k)).softmax(-1), v)
        return self.head(torch.einsum("bhtd,hed->bte", mixed, self.out).mean(1))


class Scaled(nn.Module):
    """Parameters of its own beside layers."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.enter, self.mix = nn.Linear(4, 4 * w), nn.Parameter(torch.randn(4 * w, 4 * w) / 2)
        self.scale, self.heat = nn.Parameter(torch.ones(4 * w)), nn.Parameter(torch.ones(()))
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head((self.enter(x).relu() @ self.mix) * self.scale) / self.heat


class Reading(nn.Module):
    """Reads what its layers are, their weights as well."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.enter, self.body, self.head = nn.Linear(4, 4 * w), nn.Linear(4 * w, 4 * w), nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.enter(x).tanh().view(-1, self.body.in_features)
        return self.head(
            F.linear(x, F.normalize(self.body.weight), self.body.bias)[:, : self.body.out_features]
        )


class Remembering(nn.Module):
    """Keeps its weights in a list made too early."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4 * w), nn.Linear(4 * w, 4 * w), nn.Linear(4 * w, 3)])
        self.kept = [layer.weight for layer in self.layers]

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.kept:
            x = F.linear(x, weight).tanh()
        return x


class MovingAverage(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.enter, self.body, self.head = nn.Linear(4, 4 * w), nn.Linear(4 * w, 4 * w), nn.Linear(4 * w, 3)
        self.register_buffer("mean", torch.zeros(4 * w))

    def forward(self, x: Tensor) -> Any:
        x = self.enter(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.head(self.body(x - self.mean).relu())


class Features(nn.Module):
    """Fixed random features, from torch's generator or one of their own."""

    def __init__(self, w: int, own: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 4 * w), nn.Tanh(), nn.Linear(4 * w, 4 * w))
        self.head = nn.Linear(4 * w, 3)
        self.register_buffer(
            "draw", torch.randn(4, 6, generator=torch.Generator().manual_seed(1) if own else None)
        )

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body((x @ self.draw).cos()))


class Bag(nn.Module):
    def __init__(self, w: int, sparse: bool) -> None:
        super().__init__()
        self.bag, self.body = nn.EmbeddingBag(7, 4 * w, sparse=sparse), nn.Linear(4 * w, 4 * w)
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(self.bag(x)).relu())


class Gated(nn.Module):
    """A gated linear unit: values and gates from one layer."""

    def __init__(self, w: int, declared: bool) -> None:
        super().__init__()
        both = nn.Linear(4 * w, 12 * w)
        self.enter, self.both = nn.Linear(4, 4 * w), heroes.stacked(both, outputs=2) if declared else both
        self.head = nn.Linear(6 * w, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(F.glu(self.both(self.enter(x).relu())))


class Translator(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4 * w), nn.Linear(4 * w, 3)
        self.both = nn.Transformer(4 * w, 2 * w, 1, 1, 8 * w, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        x = self.embedding(x)
        return self.head(self.both(x, x).mean(1))


class Classic(nn.Module):
    """Embeddings times the root of their size, which grows with the width."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.size = 4 * w
        self.embedding, self.body = nn.Embedding(7, 4 * w), nn.Linear(4 * w, 4 * w)
        self.head = nn.Linear(4 * w, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(self.embedding(x).mean(1) * math.sqrt(self.size)).relu())


def shuffled(w: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4 * w, 3), nn.ChannelShuffle(2), nn.Conv2d(4 * w, 4 * w, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, 3),
    )  # fmt: skip


def channels_last(w: int) -> nn.Module:
    """A linear layer after a flatten that puts pixels first."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.hidden = nn.Conv2d(1, 4 * w, 4, stride=4), nn.Linear(16 * w, 6 * w)
            self.head = nn.Linear(6 * w, 3)

        def forward(self, x: Tensor) -> Any:
            return self.head(self.hidden(self.stem(x).permute(0, 2, 3, 1).flatten(1)).relu())

    return Model()


def pruned(layer: nn.Module) -> nn.Module:
    prune.l1_unstructured(layer, "weight", 0.5)
    return layer


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda module, inputs, outputs: outputs.clamp(-1, 1))
    return layer


STACKED = "heroes.stacked(layer, inputs=[size, size])"
CASES: dict[str, Case] = {
    "multilayer perceptron with dropout": Case(mlp, rows),
    "LeNet": Case(lenet),
    "VGG": Case(vgg),
    "ResNet with shortcuts": Case(ResNet),
    "DenseNet, declared by sizes": Case(partial(DenseNet, declared=True)),
    "DenseNet, not declared": Case(partial(DenseNet, declared=False), warns=STACKED),
    "Inception, declared by sizes": Case(partial(Inception, declared=True)),
    "Inception, not declared": Case(partial(Inception, declared=False), warns="layer 'merge'"),
    "MobileNet (depthwise)": Case(mobilenet),
    "squeeze and excite": Case(SqueezeExcite),
    "U-Net, declared by sizes": Case(partial(UNet, declared=True)),
    "U-Net, not declared": Case(partial(UNet, declared=False), warns="layer 'join'"),
    "transformer encoder": Case(Encoder, words),
    "fused Q, K and V, declared": Case(partial(Decoder, declared=True), words),
    "fused Q, K and V, not declared": Case(partial(Decoder, declared=False), words, warns="layer 'out'"),
    "ViT": Case(ViT),
    "nn.Transformer": Case(Translator, words),
    "gated linear unit, declared": Case(partial(Gated, declared=True), rows),
    "gated linear unit, not declared": Case(partial(Gated, declared=False), rows, warns="layer 'head'"),
    "channel shuffle": Case(shuffled, warns="layer '2'"),
    "nn.RNN": Case(partial(Recurrent, kind=nn.RNN), words),
    "nn.LSTM": Case(partial(Recurrent, kind=nn.LSTM), words),
    "nn.GRU": Case(partial(Recurrent, kind=nn.GRU), words),
    "bidirectional LSTM, declared": Case(partial(Recurrent, kind=nn.LSTM, both=True), words),
    "bidirectional LSTM, not declared": Case(
        partial(Recurrent, kind=nn.LSTM, both=True, declared=False), words, warns="layer 'head'"
    ),
    "nn.RNNCell": Case(partial(Cell, kind=nn.RNNCell), words),
    "nn.LSTMCell": Case(partial(Cell, kind=nn.LSTMCell), words),
    "nn.GRUCell": Case(partial(Cell, kind=nn.GRUCell), words),
    "embedding tied to the output": Case(Tied, words),
    "weight_norm, old": Case(around(weight_norm), rows),
    "weight_norm, parametrization": Case(around(parametrizations.weight_norm), rows),
    "spectral_norm, old": Case(
        around(spectral_norm), rows, refused="buffer '2.weight_u' changes in training"
    ),
    "spectral_norm, parametrization": Case(
        around(parametrizations.spectral_norm),
        rows,
        refused="buffer '2.parametrizations.weight.0._u' changes",
    ),
    "pruned": Case(around(pruned), rows, warns="layer '2'"),
    "forward hook": Case(around(hooked), rows),
    "LazyLinear": Case(
        lambda w: nn.Sequential(nn.LazyLinear(4 * w), nn.Linear(4 * w, 3)), rows, refused="has no shape yet"
    ),
    "ParameterList": Case(Listed, rows),
    "parameters of its own": Case(Scaled, rows),
    "einsum with heads": Case(Einsum, words),
    "GroupNorm(width, channels)": Case(normed(nn.GroupNorm)),
    "GroupNorm(1, channels)": Case(normed(lambda w, channels: nn.GroupNorm(1, channels))),
    "InstanceNorm": Case(normed(lambda _, channels: nn.InstanceNorm2d(channels, affine=True))),
    "BatchNorm without running statistics": Case(
        normed(lambda _, channels: nn.BatchNorm2d(channels, track_running_stats=False))
    ),
    "BatchNorm": Case(normed(lambda _, channels: nn.BatchNorm2d(channels))),
    "InstanceNorm with running statistics": Case(
        normed(lambda _, channels: nn.InstanceNorm2d(channels, track_running_stats=True)),
        refused="buffer '1.running_mean' keeps running statistics, which only batch norms may",
    ),
    "model that reads its layers' weights": Case(Reading, rows),
    "weights kept in a Python list": Case(
        Remembering, rows, refused="let forward read weights from the layers"
    ),
    "moving average in a buffer": Case(MovingAverage, rows, refused="buffer 'mean' changes in training"),
    "random features, own generator": Case(partial(Features, own=True), rows),
    "random features, torch's generator": Case(
        partial(Features, own=False), rows, warns="buffer 'draw' has other values at width 1"
    ),
    "EmbeddingBag": Case(partial(Bag, sparse=False), words),
    "EmbeddingBag(sparse=True)": Case(partial(Bag, sparse=True), words, refused="use sparse=False"),
    "torch.jit.script": Case(
        lambda w: torch.jit.script(mlp(w)), rows, refused="with torch.jit, whose layers"
    ),
    "embeddings times the root of their size": Case(Classic, words, warns="layer 'body'"),
    "flatten with pixels first": Case(channels_last, warns="layer 'hidden'"),
    "digits_cnn": Case(MODELS["digits_cnn"]),
}
