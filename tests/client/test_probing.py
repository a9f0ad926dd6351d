"""What clients tell about the loss, from hand-made gradients and from a model that can be worked out on
paper.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from heroes.client.probing import Probe, estimate, probe
from heroes.models.family import LocalModel


def made(weights, losses, gradients):
    return Probe({"w": torch.tensor(weights)}, tuple(losses), torch.tensor(gradients, dtype=torch.float64))


def test_estimates_by_hand():
    before = made([0.0, 0.0], [1.0, 2.0], [[1.0, 0.0], [3.0, 0.0]])
    after = made([3.0, 4.0], [0.5, 1.5], [[2.0, 3.0], [2.0, 7.0]])
    found = estimate(before, after)
    assert found["smoothness"] == pytest.approx(5.0 / 5.0)  # mean gradients (2, 0) and (2, 5), moved by 5
    assert found["variance"] == pytest.approx(2.0)  # (1 + 1) / (2 - 1)
    assert found["gradient"] == pytest.approx(5.0)  # (1 + 9) / 2
    assert found["lipschitz"] == pytest.approx(0.5 / 5.0)  # the mean loss fell from 1.5 to 1


def test_a_rising_loss_counts_like_a_falling_one():
    before, after = made([0.0], [1.0], [[1.0]]), made([2.0], [4.0], [[1.0]])
    found = estimate(before, after)
    assert (found["lipschitz"], found["smoothness"]) == (1.5, 0.0)
    assert "variance" not in found  # one batch has none
    assert estimate(after, before)["lipschitz"] == 1.5


def test_a_model_that_did_not_move_has_no_slopes():
    found = estimate(made([1.0], [1.0], [[2.0]]), made([1.0], [1.0], [[2.0]]))
    assert found == {"gradient": 4.0}


def test_the_mean_gradient_is_over_batches():
    assert made([0.0, 0.0], [1.0, 1.0], [[1.0, 0.0], [3.0, 4.0]]).gradient.tolist() == [2.0, 2.0]


def linear(bias=False):
    module = nn.Linear(2, 2, bias=bias)
    return LocalModel(module, dict(module.named_parameters()))


def test_losses_and_gradients_of_a_linear_model_by_hand():
    batches = [
        (torch.tensor([[1.0, 2.0]]), torch.tensor([0])),
        (torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])),
    ]
    found = probe(linear(), {"weight": torch.zeros(2, 2)}, batches)
    assert found.losses == pytest.approx((math.log(2), math.log(2)))
    # (softmax - target) x^T with softmax (1/2, 1/2), rows one after the other; the mean over the batch
    wanted = [[-0.5, -1.0, 0.5, 1.0], [-0.25, 0.25, 0.25, -0.25]]
    torch.testing.assert_close(found.gradients, torch.tensor(wanted, dtype=torch.float64))
    assert found.gradients.dtype == torch.float64


def test_probing_reads_the_weights_it_is_given_and_leaves_no_gradient_behind():
    model = linear(bias=True)
    weights = {"weight": torch.tensor([[2.0, 0.0], [0.0, 0.0]]), "bias": torch.tensor([0.0, 1.0])}
    found = probe(model, weights, [(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))])
    assert found.losses == pytest.approx((math.log(1 + math.e),))  # scores 2 and 1
    assert found.gradients.shape == (1, 6)
    assert all(p.grad is None for p in model.module.parameters())


def test_dropout_is_off_and_frozen_or_unused_parameters_do_not_disturb():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = nn.Parameter(torch.ones(3))
            self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
            self.out = nn.Linear(2, 2, bias=False)
            self.drop = nn.Dropout(0.9)

        def forward(self, x):
            return self.out(self.drop(x * self.frozen))

    module = Odd().train()
    model = LocalModel(module, dict(module.named_parameters()))
    weights = {"unused": torch.ones(3), "frozen": torch.ones(2), "out.weight": torch.zeros(2, 2)}
    found = probe(model, weights, [(torch.tensor([[1.0, 2.0]]), torch.tensor([0]))])
    assert found.gradients.tolist() == [
        [0.0, 0.0, 0.0, -0.5, -1.0, 0.5, 1.0]
    ]  # the unused one is zero, the frozen left out
