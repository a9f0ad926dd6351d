"""Local terms against gradients computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from heroes.client.losses import MeanSquaredError
from heroes.client.metrics import Rmse
from heroes.client.objectives import Objective
from heroes.client.optimisers import Sgd
from heroes.client.terms import Orthogonality, Proximal
from heroes.client.training import LocalSettings, Trainer
from heroes.data import Examples
from heroes.messages import Task
from heroes.models.digits_cnn import build as build_digits
from heroes.models.family import Family

REGRESSION = Objective(MeanSquaredError(), (Rmse(MeanSquaredError()),))


def test_the_proximal_term_is_half_mu_times_the_squared_distance_from_what_arrived():
    family = Family(lambda width: nn.Linear(2 * width, 1), 1)
    model = family.dense(1)
    model.load({"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.tensor([3.0])})
    received = {"weight": torch.tensor([[1.0, 0.0]]), "bias": torch.tensor([0.0])}
    term = Proximal(0.5)(model, received)
    assert float(term.detach()) == 0.25 * (4 + 9)
    term.backward()
    assert model.parameters["weight"].grad.tolist() == [[0.0, 1.0]]
    assert model.parameters["bias"].grad.tolist() == [1.5]


def test_the_first_step_is_the_same_and_the_second_is_pulled_back(world):
    """A weight w learns 3 from input 1: the gradient of (w - 3)^2 is 2 (w - 3), the pull is mu (w - 0)."""
    family = Family(lambda width: nn.Linear(width, 1, bias=False), 1)
    examples = Examples(torch.ones(1, 1), torch.tensor([3.0]))

    def after(tau, *terms):
        settings = LocalSettings(1, REGRESSION, terms, Sgd(0.0), train_in="dense", probes=0)
        task = Task(world.assignment(tau=tau, learning_rate=0.1), {"weight": torch.zeros(1, 1)}, 1)
        update = Trainer(family, settings).train(task, examples, np.array([0]))
        return float(update.tensors["weight"]), update.loss

    assert after(1) == after(1, Proximal(0.5)) == (pytest.approx(0.6), 9.0)
    assert after(2)[0] == pytest.approx(0.6 + 0.1 * 2 * 2.4)
    pulled = after(2, Proximal(0.5))
    assert pulled[0] == pytest.approx(0.6 + 0.1 * (2 * 2.4 - 0.5 * 0.6))
    assert pulled[1] == pytest.approx((9 + 2.4**2) / 2)  # the loss that is told has no terms in it


@pytest.mark.parametrize("kind", ["dense", "composed"])
def test_terms_start_from_nothing_whatever_the_layout_of_memory(kind):
    family = Family(build_digits, 2)
    trainer = Trainer(family, LocalSettings())
    model = trainer.model(kind, 2)  # convolutions lie channels last
    tensors = model.read()
    model.load(tensors)
    assert float(Proximal(1.0)(model, tensors).detach()) == 0.0
    assert (float(Orthogonality(1.0)(model, tensors).detach()) > 0) == (kind == "composed")
