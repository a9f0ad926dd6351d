"""FjORD: leading channels at a width drawn for every step, and what distillation adds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heroes.assemble import Own
from heroes.assemble.clients import at_clients
from heroes.client.optimisers import Sgd
from heroes.client.training import LocalSettings, Trainer
from heroes.data import Examples, FederatedData
from heroes.errors import ConfigError
from heroes.messages import Task
from heroes.settings.config import Config
from heroes.slices.cuts import cut_out


def task(world, strategy, **changes):
    state = strategy.begin(0)
    assignment = world.assignment(selection=strategy.selection(2), **changes)
    return Task(assignment, cut_out(state.tensors, strategy.cut(assignment.selection)), 5)


def test_all_steps_are_at_a_width_that_is_drawn(world):
    strategy = world.strategy("fjord")
    assert (strategy.duties(2).any_width, strategy.duties(2).distil) == (1.0, False)
    assert world.strategy("fjord", distil=True).duties(2).distil


def test_a_step_costs_the_mean_over_the_widths_that_are_drawn(world):
    plain, drawn, distilled = (
        world.assembled(name, {"training.probes": 0, **changes}).strategy.ground.costs
        for name, changes in (("heterofl", {}), ("fjord", {}), ("fjord", {"strategy.distil": True}))
    )
    one, two, three = plain.step_flops
    assert drawn.step_flops == pytest.approx([one, (one + two) / 2, (one + two + three) / 3])
    assert distilled.step_flops == pytest.approx(
        [one, (one + two + two) / 2, (one + two + three + 2 * three) / 3]
    )
    assert drawn.bytes_up.tolist() == plain.bytes_up.tolist()  # the client's own width travels


def test_a_step_that_distils_adds_what_the_widest_says_to_the_labels(world):
    strategy = world.strategy("fjord", distil=True)
    local = LocalSettings(batch_size=5, train_in="dense", probes=0, any_width=1.0, distil=True)
    trainer, family = Trainer(strategy.family, local), strategy.family
    received = task(world, strategy).tensors
    inputs, targets = world.examples().batch(np.arange(5), torch.device("cpu"))
    model = trainer.model("dense", 2)
    model.load(received)
    loss, told, _ = trainer._loss(model, 2, 1, inputs, targets, ())
    loss.backward()
    wide, narrow = family.dense(2), family.dense(1)
    wide.load(received)
    narrow.load(cut_out(received, family.cut_within(2, 1, "weights")))
    teacher, student = wide(inputs), narrow(inputs)
    labels, soft = F.cross_entropy(teacher, targets), teacher.softmax(1).detach()
    distilled = -(soft * student.log_softmax(1)).sum(1).mean()
    assert loss.item() == pytest.approx((labels + distilled).item(), rel=1e-5)
    assert told.item() == pytest.approx(labels.item(), rel=1e-5)
    (labels + distilled).backward()
    both = wide.parameters["0.weight"].grad.clone()
    both[:3] += narrow.parameters["0.weight"].grad
    torch.testing.assert_close(model.parameters["0.weight"].grad, both)
    model.load(received)
    loss, told, _ = trainer._loss(
        model, 2, 2, inputs, targets, ()
    )  # the widest itself has nobody to learn from
    assert loss.item() == told.item()


def test_narrow_models_are_better_than_those_that_are_cut_from_a_wide_one(world):
    """What ordered dropout is for: everyone trains width 3, and the model of width 1 can be used."""
    data = world.data()
    scores = {}
    for name in ("heterofl", "fjord"):
        strategy = world.strategy(name)
        duties = strategy.duties(0)
        local = LocalSettings(
            batch_size=20, train_in="dense", probes=0, any_width=duties.any_width, optimiser=Sgd(0.9)
        )
        trainer = Trainer(strategy.family, local)
        selection = strategy.selection(3)
        received = cut_out(strategy.begin(0).tensors, strategy.cut(selection))
        work = Task(world.assignment(selection=selection, tau=60), received, 5)
        trained = trainer.train(work, data.train, np.arange(len(data.train)))
        narrow = strategy.family.dense(1)
        narrow.load(cut_out(trained.tensors, strategy.cut(strategy.selection(1))))
        right = narrow(data.test.inputs).argmax(1) == data.test.targets
        scores[name] = float(right.double().mean())
    assert scores["fjord"] > scores["heterofl"] + 0.1


def test_distillation_needs_scores_of_classes(world):
    train, test = (
        Examples(part.inputs, part.targets.float()) for part in (world.examples(), world.data().test)
    )
    changes = {
        "strategy.name": "fjord",
        "strategy.distil": True,
        "objective.name": "mean_squared_error",
        "federation.clients": 12,
        "federation.cohort": 4,
        "training.device": "cpu",
    }
    own = Own(lambda width: None, FederatedData(train, test, world.data().shares))
    with pytest.raises(
        ConfigError, match=r"strategy\.distil needs .* 'mean_squared_error' has not; use false"
    ):
        at_clients(Config().changed(changes), own)
