"""Local optimisers against torch's own and against arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from heroes.client.losses import CROSS_ENTROPY
from heroes.client.optimisers import AdamW, Sgd
from heroes.client.training import LocalSettings, Trainer
from heroes.messages import Task


def moved(optimiser, gradients, rates):
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    idle = nn.Parameter(torch.tensor([7.0]))  # never reached by a gradient
    step = optimiser.begin([parameter, idle])
    for gradient, rate in zip(gradients, rates, strict=True):
        parameter.grad = torch.tensor(gradient)
        step(rate)
    assert idle.tolist() == [7.0]
    return parameter.detach()


def test_sgd_by_hand():
    """The first step is -0.1 * 1; the second has speed 0.5 * 1 + 1."""
    found = moved(Sgd(0.5), [[1.0, 0.0], [1.0, 0.0]], [0.1, 0.1])
    torch.testing.assert_close(found, torch.tensor([1 - 0.1 - 0.15, -2.0]))


def test_the_first_step_of_adamw_is_the_learning_rate_whatever_the_gradient():
    found = moved(AdamW(), [[1e-3, -40.0]], [0.01])
    torch.testing.assert_close(found, torch.tensor([0.99, -1.99]))
    decayed = moved(AdamW(weight_decay=0.5), [[1e-3, -40.0]], [0.01])
    torch.testing.assert_close(decayed, torch.tensor([0.995 - 0.01, -1.99 + 0.01]))


def test_adamw_equals_torchs_object():
    gradients = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).tolist()
    reference = nn.Parameter(torch.tensor([1.0, -2.0]))
    theirs = torch.optim.AdamW([reference], 0.05, (0.8, 0.95), 1e-6, 0.1, fused=True)
    for gradient in gradients:
        reference.grad = torch.tensor(gradient)
        theirs.step()
    found = moved(AdamW(0.8, 0.95, 1e-6, 0.1), gradients, [0.05] * 5)
    assert torch.equal(found, reference.detach())


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_client_trains_with_adamw_from_zero_in_every_round(world, clip):
    family, examples, share = world.family(), world.examples(30), np.arange(30)
    settings = LocalSettings(30, optimiser=AdamW(), clip=clip, train_in="dense", probes=0)
    trainer = Trainer(family, settings)
    sent = family.initial_weights(2)
    task = Task(
        world.assignment(selection=world.strategy("fedavg").selection(3), tau=3, learning_rate=0.01), sent, 4
    )
    first, again = (trainer.train(task, examples, share).tensors for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in sent)
    model = family.dense(3)
    model.load(sent)
    theirs = torch.optim.AdamW(model.parameters.values(), 0.01, weight_decay=0.0)
    for _ in range(3):
        theirs.zero_grad()
        CROSS_ENTROPY.mean(model(examples.inputs), examples.targets).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters.values(), clip)
        theirs.step()
    for name, value in model.read().items():
        torch.testing.assert_close(first[name], value, rtol=1e-3, atol=1e-5)
