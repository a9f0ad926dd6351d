"""Steps that train the leading part of a client's slice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from heroes.client.training import LocalSettings, Trainer
from heroes.data import Examples
from heroes.messages import Task
from heroes.models.char_rnn import build as build_rnn
from heroes.models.digits_cnn import build as build_cnn
from heroes.models.family import Family
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out


def images(count: int = 24) -> Examples:
    generator = torch.Generator().manual_seed(1)
    return Examples(torch.randn(count, 1, 8, 8, generator=generator), torch.arange(count) % 10)


def text(count: int = 24) -> Examples:
    generator = torch.Generator().manual_seed(1)
    return Examples(torch.randint(0, 80, (count, 12), generator=generator), torch.arange(count) % 80)


MODELS = {"digits_cnn": (build_cnn, images), "char_rnn": (build_rnn, text)}


@pytest.fixture(params=MODELS)
def family_and_data(request: pytest.FixtureRequest) -> tuple[Family, Examples]:
    build, data = MODELS[request.param]
    return Family(build, 4), data()


def trainer(family: Family, **changes: object) -> Trainer:
    return Trainer(family, LocalSettings(batch_size=8, probes=0, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("train_in", ["factors", "dense"])
@pytest.mark.parametrize("narrow", [1, 2])
def test_a_narrow_step_is_one_of_the_narrow_model(family_and_data, train_in, narrow):
    family, data = family_and_data
    holds = "factors" if train_in == "factors" else "weights"
    whole = family.initial(3) if train_in == "factors" else family.initial_weights(3)
    wide = (
        cut_out(whole, family.cut(grid_selection((0, 1, 2), 4)))
        if holds == "factors"
        else cut_out(whole, family.cut_weights((0, 1, 2)))
    )
    here = trainer(family, train_in=train_in)
    model = here.model("composed" if holds == "factors" else "dense", 3)
    model.load(wide)
    inputs, targets = data.batch(np.arange(8), torch.device("cpu"))
    nn.functional.cross_entropy(here._scores(model, 3, narrow, inputs, ()), targets).backward()
    cut = family.cut_within(3, narrow, holds)
    alone = family.composed(narrow) if holds == "factors" else family.dense(narrow)
    alone.load(cut_out(wide, cut))
    nn.functional.cross_entropy(alone(inputs), targets).backward()
    gradients = {
        name: torch.zeros(model.shapes[name]) if p.grad is None else p.grad.reshape(model.shapes[name])
        for name, p in model.parameters.items()
    }
    for name, gradient in cut_out(gradients, cut).items():
        expected = alone.parameters[name].grad
        assert expected is not None
        torch.testing.assert_close(gradient, expected.reshape(gradient.shape))
    total = sum(float(g.square().sum()) for g in gradients.values())
    inside = sum(float(g.square().sum()) for g in cut_out(gradients, cut).values())
    assert inside == pytest.approx(total, rel=1e-5)  # nothing else moves


def test_widths_are_drawn_up_to_ones_own_by_the_tasks_seed(world):
    family = Family(build_cnn, 4)
    always = trainer(family, any_width=1.0)
    task = Task(replace(world.assignment(1), selection=grid_selection((0, 1, 2), 4)), {}, 7)

    def drawn(of: Trainer, seed: int) -> list[int]:
        widths = of._widths(replace(task, seed=seed))
        return [next(widths) for _ in range(200)]

    assert set(drawn(always, 7)) == {1, 2, 3}
    assert drawn(always, 7) == drawn(always, 7) != drawn(always, 8)
    assert set(drawn(trainer(family), 7)) == {3}
    assert 0.25 < np.mean([width < 3 for width in drawn(trainer(family, any_width=0.6), 7)]) < 0.55
