"""Losses against numbers computed by hand, and what they say of outputs and targets that do not fit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from heroes.client.losses import BinaryCrossEntropy, CrossEntropy, MeanSquaredError, NextToken, OwnLoss
from heroes.errors import DataError, TrainingError


def test_cross_entropy_smooths_labels_in_training_only():
    outputs, targets = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([0])  # 3/4 and 1/4
    right, wrong = -math.log(0.75), -math.log(0.25)
    loss = CrossEntropy(label_smoothing=0.2)
    assert float(loss.mean(outputs, targets)) == pytest.approx(0.9 * right + 0.1 * wrong)
    assert loss.each(outputs, targets).tolist() == pytest.approx([right])
    assert float(CrossEntropy().mean(outputs, targets)) == pytest.approx(right)


def test_cross_entropy_takes_a_class_for_every_pixel():
    outputs = torch.zeros(2, 3, 4, 5)
    outputs[:, 1] = math.log(2.0)  # 1/4, 1/2, 1/4
    targets = torch.ones(2, 4, 5, dtype=torch.int64)
    targets[0, 0, 0] = 2
    losses = CrossEntropy().each(outputs, targets)
    assert losses.shape == (40,)
    assert float(losses.sum()) == pytest.approx(39 * math.log(2) + math.log(4), rel=1e-6)


@pytest.mark.parametrize(("outputs", "targets"), [((2,), (2,)), ((2, 1), (2,)), ((2, 3), (2, 3))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_binary_cross_entropy_takes_floats_or_whole_numbers(outputs, targets, dtype):
    scores = torch.full(outputs, math.log(3.0))  # yes with 3/4
    wanted = torch.zeros(targets, dtype=dtype)
    wanted[0] = 1
    each = BinaryCrossEntropy().each(scores, wanted)
    assert each.shape == targets
    mean = (-math.log(0.75) - math.log(0.25)) / 2
    assert float(each.mean()) == pytest.approx(mean)
    assert float(BinaryCrossEntropy().mean(scores, wanted)) == pytest.approx(mean)


@pytest.mark.parametrize(("outputs", "targets"), [((2, 1), (2,)), ((2,), (2,)), ((2, 2), (2, 2))])
def test_mean_squared_error_is_over_all_values(outputs, targets):
    found, wanted = torch.zeros(outputs), torch.zeros(targets)
    wanted[1] = 3.0
    assert float(MeanSquaredError().mean(found, wanted)) == pytest.approx(4.5)
    assert MeanSquaredError().each(found, wanted).flatten().tolist() == [0.0] * (wanted.numel() // 2) + [
        9.0
    ] * (wanted.numel() // 2)


def test_next_token_is_the_mean_over_tokens():
    outputs = torch.zeros(2, 3, 4)
    outputs[0, 0, 1] = math.log(5.0)  # 5/8 for token 1 there, 1/4 for everything elsewhere
    targets = torch.ones(2, 3, dtype=torch.int64)
    mean = (-math.log(5 / 8) + 5 * math.log(4)) / 6
    assert float(NextToken().mean(outputs, targets)) == pytest.approx(mean)
    assert NextToken().each(outputs, targets).shape == (6,)
    smooth = NextToken(label_smoothing=0.4).mean(outputs, targets)  # a tenth more of each of four tokens
    first = -(0.7 * math.log(5 / 8) + 0.3 * math.log(1 / 8))
    assert float(smooth) == pytest.approx((first + 5 * math.log(4)) / 6)


@pytest.mark.parametrize(
    ("loss", "outputs", "targets"),
    [
        (CrossEntropy(), (5,), (5,)),
        (CrossEntropy(), (5, 3), (4,)),
        (CrossEntropy(), (5, 3, 2), (5, 3)),
        (NextToken(), (5, 3), (5,)),
        (NextToken(), (5, 3, 7), (5, 7)),
        (BinaryCrossEntropy(), (5, 2), (5,)),
        (MeanSquaredError(), (5, 10), (5,)),
        (MeanSquaredError(), (5,), (5, 1)),
    ],
)
def test_outputs_that_do_not_fit_are_named_with_both_shapes(loss, outputs, targets):
    for compute in (loss.mean, loss.each):
        with pytest.raises(TrainingError) as caught:
            compute(torch.zeros(outputs), torch.zeros(targets, dtype=torch.int64))
        assert loss.name in str(caught.value)
        assert f"outputs have shape {outputs} and the targets {targets}; it takes" in str(caught.value)


def test_a_model_must_give_a_tensor():
    with pytest.raises(TrainingError, match="cross_entropy: the model gave a tuple; it should give a tensor"):
        CrossEntropy().mean((torch.zeros(2, 2),), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("loss", "targets", "said"),
    [
        (
            CrossEntropy(),
            torch.tensor([0.5]),
            "'cross_entropy', but targets are torch.float32; it takes class",
        ),
        (NextToken(), torch.tensor([[1.0]]), "'next_token', but targets are torch.float32; it takes token"),
        (NextToken(), torch.tensor([[1, -3]]), "there is a target -3; token numbers start at 0"),
        (BinaryCrossEntropy(), torch.tensor([0, 9]), "targets are 0 to 9; they must be 0 to 1"),
        (BinaryCrossEntropy(), torch.tensor([0.0, math.nan]), "targets are nan to nan"),
        (MeanSquaredError(), torch.tensor([1, 2]), "targets are torch.int64; it takes torch.float32"),
        (MeanSquaredError(), torch.tensor([1.0, math.inf]), "some targets are not finite"),
    ],
)
def test_targets_that_cannot_be_learned_are_refused(loss, targets, said):
    with pytest.raises(DataError, match=said):
        loss.check(targets)


def test_a_loss_of_ones_own_stands_for_every_example():
    loss = OwnLoss(nn.L1Loss())
    outputs, targets = torch.tensor([1.0, 5.0], requires_grad=True), torch.tensor([2.0, 2.0])
    assert float(loss.mean(outputs, targets).detach()) == 2.0
    assert loss.each(outputs, targets).tolist() == [2.0, 2.0]
    assert loss.name == "L1Loss (your own loss)"


def broken(outputs, targets):
    raise KeyError("weight")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (broken, r"broken \(your own loss\) failed on outputs of shape \(2,\), targets of \(2,\): KeyError"),
        (lambda o, t: o - t, r"gave torch.float32 of shape \(2,\); it should give a tensor of one finite"),
        (lambda o, t: 1.5, "gave a float; it should give a tensor"),
        (lambda o, t: o.sum() * math.nan, "gave nan; it should give a tensor of one finite number"),
        (lambda o, t: (o > t).sum(), r"gave torch.int64 of shape \(\); it should"),
        (lambda o, t: o.detach().sum(), "does not depend on the outputs any more"),
    ],
)
def test_a_loss_of_ones_own_that_is_wrong_is_named(function, said):
    with pytest.raises(TrainingError, match=said):
        OwnLoss(function).mean(torch.zeros(2, requires_grad=True), torch.zeros(2))
