"""A family tried on real examples, through whole runs: state is refused, and a remark reaches who listens."""

from functools import partial

import pytest
import torch
from architectures import DenseNet, Inception, MovingAverage, images, rows
from torch import Tensor, nn

import heroes
from heroes.errors import ModelError
from heroes.models.checking import same_buffers
from heroes.models.family import Family


def shared_out(inputs: Tensor) -> tuple[heroes.Examples, heroes.Examples]:
    examples = heroes.Examples(inputs, torch.arange(len(inputs)) % 3)
    return examples, examples


def little(strategy: str, **settings: object) -> heroes.Config:
    return heroes.recipes.digits(rounds=1, strategy=strategy).changed(
        {"federation.clients": 3, "federation.cohort": 2, "model.max_width": 2, **settings}
    )


class Counting(nn.Module):
    """Counts what it is tested on, in a buffer that training leaves alone."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4 * w), nn.Linear(4 * w, 4 * w), nn.Linear(4 * w, 3))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", None)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.seen += len(x)
            self.last = x.detach()
        y: Tensor = self.body(x) + self.seen
        return y


@pytest.mark.parametrize("kind", ["dense", "composed"])
def test_buffers_are_what_build_made_whenever_a_model_is_loaded(kind: str) -> None:
    family = Family(Counting, 2)
    model = getattr(family, kind)(2)
    start, x = model.read(), rows()
    model.load(start)
    first = model.module.eval()(x)
    assert model.module.seen == 6
    model.load(start)
    assert (model.module.seen, model.module.last) == (0, None)
    assert torch.equal(model.module(x), first)
    model.module.double()
    model.load(start)
    assert model.module.seen.dtype == torch.float64


@pytest.mark.parametrize("strategy", ["heroes", "fedavg"])
@pytest.mark.parametrize(("build", "name"), [(MovingAverage, "mean"), (Counting, "seen")])
def test_a_run_refuses_a_buffer_that_changes(strategy: str, build: type[nn.Module], name: str) -> None:
    with pytest.raises(
        ModelError, match=rf"buffer '{name}' changes in training or testing, .* nn\.Parameter"
    ):
        heroes.run(little(strategy), model=build, data=shared_out(rows(30)))


def test_a_buffer_that_appears_is_a_change_and_one_that_is_nan_is_none() -> None:
    model = Counting(1)
    model.seen = torch.tensor(float("nan"))
    with same_buffers(model):
        model.train()(rows())
    with pytest.raises(ModelError, match="buffer 'last' changes"), same_buffers(model):
        model.last = torch.ones(2)


@pytest.mark.parametrize("strategy", ["heroes", "heterofl"])
def test_a_concatenation_that_was_not_declared_is_said_to_who_listens(strategy: str) -> None:
    told: list[str] = []
    for declared in (True, False):
        build = partial(Inception, declared=declared)
        heroes.run(
            little(strategy),
            model=build,
            data=shared_out(images(30)),
            on_progress=lambda *s: told.append(s[0]),
        )
    assert len(told) == 1
    assert told[0].startswith("layer 'merge' gives other values in a narrow model")
    assert "heroes.stacked(layer, inputs=[size, size])" in told[0]


def test_nothing_is_said_where_all_clients_train_the_complete_model() -> None:
    told: list[str] = []
    build, data = partial(DenseNet, declared=False), shared_out(images(30))
    heroes.run(little("fedavg"), model=build, data=data, on_progress=lambda *s: told.append(s[0]))
    assert told == []


def test_a_run_with_unequal_parts_hands_out_every_width() -> None:
    result = heroes.run(little("heroes"), model=partial(DenseNet, declared=True), data=shared_out(images(30)))
    for width in (1, 2):
        assert result.model(width)(images()).shape == (6, 3)
