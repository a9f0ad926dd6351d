"""Models whose layers can neither be cut nor trained are refused at once, by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import heroes
from heroes.errors import ModelError


class Words(nn.Module):
    """Classes of bags of words; the table of words is sparse or not."""

    def __init__(self, width: int, sparse: bool) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(20, 4 * width, sparse=sparse)
        self.classes = nn.Linear(4 * width, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.classes(self.words(inputs))


def compiled(width: int) -> nn.Module:
    return torch.jit.script(plain(width))


def compiled_inside(width: int) -> nn.Module:
    first, *others = plain(width)
    return nn.Sequential(torch.jit.script(first), *others)


def traced(width: int) -> nn.Module:
    return torch.jit.trace(plain(width), torch.zeros(1, 4))


def plain(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4 * width), nn.ReLU(), nn.Linear(4 * width, 3))


def trained(build, inputs):
    examples = heroes.Examples(inputs, torch.arange(len(inputs)) % 3)
    small = {
        "federation.clients": 4,
        "federation.cohort": 2,
        "engine.name": "in_process",
        "training.device": "cpu",
    }
    config = heroes.recipes.digits(rounds=1).changed(small)
    return heroes.run(config, model=build, data=(examples, examples))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("build", "what"),
    [
        (compiled, "the model"),
        (traced, "the model"),
        (compiled_inside, "layer '0' of the model"),
    ],
)
def test_what_torch_jit_compiled_is_refused(build, what):
    with pytest.raises(
        ModelError, match=rf"^{what} is compiled by torch\.jit and cannot be cut: give the plain"
    ):
        trained(build, torch.randn(60, 4))


def test_sparse_gradients_are_refused_and_dense_ones_are_not():
    words = torch.randint(0, 20, (60, 5))
    with pytest.raises(ModelError, match=r"^layer 'words' of the model has sparse=True: .* say sparse=False"):
        trained(lambda width: Words(width, sparse=True), words)
    assert not trained(lambda width: Words(width, sparse=False), words).records[0].missing


def test_a_model_that_cannot_be_built_is_refused_as_ever():
    with pytest.raises(ModelError, match=r"build\(width=1\) failed: ZeroDivisionError"):
        trained(lambda width: 1 // 0, torch.randn(60, 4))
