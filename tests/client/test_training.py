"""A client's round against hand-written descent, and its estimates against hand-computed ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heroes.client.optimisers import Sgd
from heroes.client.terms import Orthogonality
from heroes.client.training import LocalSettings, OwnClock, Trainer, draw_batches, own_randomness
from heroes.data import Examples
from heroes.messages import Selection, Task
from heroes.models.digits_cnn import build as build_digits
from heroes.models.family import Family
from heroes.models.layers import ComposedConv2d
from heroes.models.paths import COMPOSE
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out

EVERYONE = np.arange(30)
BASIS, COEFFICIENT = "2.weight.basis", "2.weight.coefficient"
WHOLE = Selection(2, (0, 1), (0, 1, 2, 3))


@pytest.fixture
def family(world):
    return world.family(max_width=2)


@pytest.fixture
def examples(world):
    return world.examples(30)


@pytest.fixture
def trained(world, family, examples):
    """Train the whole width-2 model on all examples; settings and task can be changed."""

    def train(tensors=None, *, tau=4, learning_rate=0.2, seed=5, of=family, **changes):
        settings = LocalSettings(**({"batch_size": 30, "optimiser": Sgd(0.0), "probes": 0} | changes))
        assignment = world.assignment(3, round=8, selection=WHOLE, tau=tau, learning_rate=learning_rate)
        task = Task(assignment, of.initial(1) if tensors is None else tensors, seed)
        return Trainer(of, settings).train(task, examples, EVERYONE)

    return train


def composed(basis, coefficient):
    """The width-2 weight by its definition: block a*2 + b joins input group a to output group b."""
    rows = [torch.cat([(basis @ coefficient[a * 2 + b]).T for a in range(2)], dim=1) for b in range(2)]
    return torch.cat(rows)


def scores(t, x):
    hidden = torch.tanh(x @ t["0.weight"].T + t["0.bias"])
    hidden = torch.tanh(hidden @ composed(t[BASIS], t[COEFFICIENT]).T + t["2.bias"])
    return hidden @ t["4.weight"].T + t["4.bias"]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_on_the_factors_equal_descent_written_by_hand(family, examples, trained, momentum):
    values = {name: value.clone().requires_grad_() for name, value in family.initial(1).items()}
    speed = {name: torch.zeros_like(value) for name, value in values.items()}
    losses = []
    for _ in range(4):
        loss = F.cross_entropy(scores(values, examples.inputs), examples.targets)
        losses.append(float(loss.detach()))
        gradients = torch.autograd.grad(loss, list(values.values()))
        for (name, value), gradient in zip(list(values.items()), gradients, strict=True):
            speed[name] = momentum * speed[name] + gradient
            values[name] = (value - 0.2 * speed[name]).detach().requires_grad_()
    update = trained(optimiser=Sgd(momentum))
    assert update.tensors.keys() == values.keys()
    for name, value in values.items():
        torch.testing.assert_close(update.tensors[name], value.detach(), rtol=1e-4, atol=1e-6)
    assert update.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert (update.client, update.round, update.samples) == (3, 8, 30)


@pytest.mark.parametrize("kind", ["dense", "factors"])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_steps_equal_torchs_own_optimiser_on_a_convolutional_network(world, kind, width):
    """The reference has no tricks: the default memory layout, weights composed by definition, a plain SGD
    object.
    """
    family = Family(build_digits, 4)
    inputs = torch.randn(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    examples = Examples(inputs, torch.arange(30) % 10)
    sent = cut_out(family.initial(1), family.cut(grid_selection(tuple(range(width)), 4)))
    sent = dict(family.plain_weights(sent)) if kind == "dense" else sent
    reference = family.dense(width) if kind == "dense" else family.composed(width)
    reference.load(sent)
    for layer in reference.module.modules():
        if isinstance(layer, ComposedConv2d):
            layer.given_path = COMPOSE
    optimiser = torch.optim.SGD(reference.parameters.values(), 0.02, 0.9, weight_decay=0.01)
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(reference.module(examples.inputs), examples.targets).backward()
        optimiser.step()
    settings = LocalSettings(batch_size=30, optimiser=Sgd(0.9, 0.01), probes=0, train_in=kind)
    assignment = world.assignment(
        3, selection=grid_selection(tuple(range(width)), 4), tau=3, learning_rate=0.02
    )
    update = Trainer(family, settings).train(Task(assignment, sent, 5), examples, EVERYONE)
    for name, value in reference.read().items():
        torch.testing.assert_close(update.tensors[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("train_in", ["factors", "weights"])
def test_training_lowers_the_loss(family, examples, trained, train_in):
    def loss(tensors):
        return float(F.cross_entropy(scores(tensors, examples.inputs), examples.targets))

    update = trained(tau=40, batch_size=10, train_in=train_in)
    assert loss(update.tensors) < 0.7 * loss(family.initial(1))


def test_training_changes_neither_what_was_sent_nor_what_was_answered_before(world, family, examples):
    sent = family.initial(1)
    kept = {name: value.clone() for name, value in sent.items()}
    trainer = Trainer(family, LocalSettings(batch_size=10, probes=1))
    task = Task(world.assignment(selection=WHOLE), sent, 1)
    first = trainer.train(task, examples, EVERYONE)
    answered = {name: value.clone() for name, value in first.tensors.items()}
    second = trainer.train(task, examples, EVERYONE)
    assert all(torch.equal(sent[name], kept[name]) for name in sent)
    assert all(torch.equal(first.tensors[name], answered[name]) for name in sent)
    # no momentum left over either
    assert all(torch.equal(second.tensors[name], answered[name]) for name in sent)


def test_training_in_weights_descends_on_the_composed_weight_and_decomposes_it(world, trained):
    family = world.family(max_width=2, rank_ratio=1.5)  # rank 3: every weight can be composed
    sent = family.initial(1)
    update = trained(sent, of=family, train_in="weights")
    dense = trained(dict(family.plain_weights(sent)), of=family, train_in="dense")
    assert update.tensors.keys() == sent.keys()
    for name, value in dense.tensors.items():
        torch.testing.assert_close(family.plain_weights(update.tensors)[name], value, rtol=1e-3, atol=1e-4)
    moved = dense.tensors["2.weight"] - family.plain_weights(sent)["2.weight"]
    assert moved.norm() > 0.01


@pytest.mark.parametrize("learning_rate", [1e-3, 0.2])
def test_a_decomposed_answer_of_low_rank_is_nearer_to_the_trained_weight_than_what_was_sent(
    family, trained, learning_rate
):
    sent = family.initial(1)
    update = trained(sent, train_in="weights", learning_rate=learning_rate)
    start = family.plain_weights(sent)
    target = trained(dict(start), train_in="dense", learning_rate=learning_rate).tensors
    found = family.plain_weights(update.tensors)
    moved = (target["2.weight"] - start["2.weight"]).norm()
    assert moved > 0
    assert (found["2.weight"] - target["2.weight"]).norm() < 0.8 * moved
    for name in ("0.weight", "0.bias", "2.bias", "4.weight", "4.bias"):
        assert torch.equal(found[name], target[name])


def test_clipping_limits_the_length_of_a_step(family, trained):
    sent = family.initial(1)

    def length(clip):
        after = trained(sent, tau=1, learning_rate=0.5, clip=clip).tensors
        return float(torch.sqrt(sum((after[name] - sent[name]).square().sum() for name in sent)))

    free = length(None)
    assert free > 0.5 * 0.1
    assert length(0.1) == pytest.approx(0.5 * 0.1, rel=1e-3)
    assert length(100.0) == pytest.approx(free, rel=1e-6)


def test_weight_decay_shrinks_every_tensor(family, trained):
    sent = family.initial(1)
    without = trained(sent, tau=1).tensors
    decayed = trained(sent, tau=1, optimiser=Sgd(0.0, weight_decay=0.3)).tensors
    for name, value in sent.items():
        torch.testing.assert_close(decayed[name], without[name] - 0.2 * 0.3 * value, rtol=1e-4, atol=1e-6)


def test_the_regulariser_moves_the_basis_only_and_down_its_own_gradient(family, trained):
    sent = family.initial(1) | {BASIS: torch.tensor([[1.0, 0.5], [0.0, 2.0], [0.3, 0.0]])}
    without = trained(sent, tau=1).tensors
    with_it = trained(sent, tau=1, terms=(Orthogonality(0.4),)).tensors
    basis = sent[BASIS]
    gradient = 4 * basis @ (basis.T @ basis - torch.eye(2)) / 4  # of the mean over 2 x 2 squares
    torch.testing.assert_close(with_it[BASIS], without[BASIS] - 0.2 * 0.4 * gradient, rtol=1e-4, atol=1e-5)
    for name in sent.keys() - {BASIS}:
        torch.testing.assert_close(with_it[name], without[name])


def linear_client(world, inputs, targets, *, tau, batch_size, probes, learning_rate=1e-4):
    """A linear model of two classes without bias, started at zero, trained on these examples."""
    family = Family(lambda width: nn.Linear(2 * width, 2, bias=False), 1)
    settings = LocalSettings(batch_size=batch_size, optimiser=Sgd(0.0), probes=probes, train_in="factors")
    assignment = world.assignment(tau=tau, learning_rate=learning_rate)
    examples = Examples(torch.tensor(inputs), torch.tensor(targets))
    return Trainer(family, settings).train(
        Task(assignment, {"weight": torch.zeros(2, 2)}, 1), examples, np.arange(len(targets))
    )


def test_smoothness_and_gradient_of_a_linear_model_by_hand(world):
    update = linear_client(
        world, [[1.0, 2.0]] * 4, [0] * 4, tau=3, batch_size=2, probes=2, learning_rate=1e-2
    )
    found = update.measured
    assert update.loss == pytest.approx(np.log(2), abs=0.05)
    # (s - y) x^T with s = (1/2, 1/2): squared norm 1/2 |x|^2
    assert found["gradient"] == pytest.approx(0.5 * 5)
    assert found["variance"] == pytest.approx(0.0, abs=1e-9)  # all examples are the same
    # the Hessian's eigenvalue along the gradient is 1/2 |x|^2
    assert found["smoothness"] == pytest.approx(0.5 * 5, rel=0.02)


def test_gradient_variance_by_hand(world):
    found = linear_client(world, [[1.0, 0.0], [0.0, 2.0]], [0, 1], tau=1, batch_size=1, probes=2).measured
    assert found["gradient"] == pytest.approx((0.5 + 2.0) / 2)  # |x|^2 / 2 each
    assert found["variance"] == pytest.approx((0.5 + 2.0) / 2)  # |g1 - g2|^2 / 2, and they are orthogonal


def test_smoothness_is_measured_over_the_composed_weights(family, examples, trained):
    sent = family.initial(1)
    update = trained(sent, probes=1)

    def gradient(weights):
        values = {name: value.clone().requires_grad_() for name, value in weights.items()}
        hidden = torch.tanh(examples.inputs @ values["0.weight"].T + values["0.bias"])
        hidden = torch.tanh(hidden @ values["2.weight"].T + values["2.bias"])
        loss = F.cross_entropy(hidden @ values["4.weight"].T + values["4.bias"], examples.targets)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(values.values()))])

    def plain(tensors):
        rest = {name: tensors[name] for name in ("0.weight", "0.bias", "2.bias", "4.weight", "4.bias")}
        return rest | {"2.weight": composed(tensors[BASIS], tensors[COEFFICIENT])}

    start, end = plain(sent), plain(update.tensors)
    moved = torch.cat([(end[name] - start[name]).reshape(-1) for name in start]).norm()
    turned = (gradient(end) - gradient(start)).norm()
    assert update.measured["smoothness"] == pytest.approx(float(turned / moved), rel=1e-3)
    assert update.measured["gradient"] == pytest.approx(float(gradient(start).square().sum()), rel=1e-3)
    assert "variance" not in update.measured  # one probe has no variance


def test_a_client_that_did_not_move_has_no_smoothness(trained):
    found = trained(learning_rate=0.0, probes=2).measured
    assert "smoothness" not in found
    assert found["gradient"] > 0


def test_without_probes_only_the_loss_is_said(trained):
    update = trained(probes=0)
    assert update.loss > 0
    assert update.measured == {}


def test_probing_does_not_change_the_training(trained):
    without, probed = (trained(batch_size=7, probes=probes).tensors for probes in (0, 3))
    assert all(torch.equal(without[name], probed[name]) for name in without)


def test_dropout_is_reproduced_from_the_tasks_seed_and_leaves_no_trace(world, trained):
    family = world.family(
        2, build=lambda width: nn.Sequential(nn.Linear(4, 20 * width), nn.Dropout(), nn.Linear(20 * width, 3))
    )
    before = torch.get_rng_state()
    one = trained(of=family).tensors
    torch.testing.assert_close(torch.get_rng_state(), before)
    torch.rand(5)  # whatever happened in between
    again, other = trained(of=family).tensors, trained(of=family, seed=6).tensors
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert (
        one["0.weight"] - other["0.weight"]
    ).abs().max() > 1e-3  # other units were dropped: more than rounding


def test_own_randomness_gives_the_generator_back_after_an_error():
    def draw_and_fail():
        with own_randomness(3):
            torch.rand(2)
            raise RuntimeError("boom")

    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="boom"):
        draw_and_fail()
    assert torch.equal(torch.get_rng_state(), before)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 30), st.integers(0, 99))
def test_batches_are_passes_over_the_share_without_repeats(examples_held, batch_size, count, seed):
    share = np.arange(100, 100 + examples_held)
    batches = draw_batches(share, batch_size, count, np.random.default_rng(seed))
    size = min(batch_size, examples_held)
    per_pass = examples_held // size
    assert [len(batch) for batch in batches] == [size] * count
    for first in range(0, count, per_pass):
        drawn = np.concatenate(batches[first : first + per_pass]).tolist()
        assert len(set(drawn)) == len(drawn)
        assert set(drawn) <= set(share.tolist())


def test_a_share_smaller_than_a_batch_is_trained_on_whole(world, family, examples):
    task = Task(world.assignment(selection=WHOLE, tau=2), family.initial(1), 1)
    small = Trainer(family, LocalSettings(batch_size=32, probes=2)).train(
        task, examples, np.array([4, 9, 17])
    )
    exact = Trainer(family, LocalSettings(batch_size=3, probes=2)).train(task, examples, np.array([4, 9, 17]))
    assert small.samples == 3
    assert all(torch.equal(small.tensors[name], exact.tensors[name]) for name in small.tensors)
    assert (small.loss, small.measured) == (exact.loss, exact.measured)
    assert small.measured["variance"] == pytest.approx(0.0, abs=1e-9)  # every probe is the whole share


def test_a_task_may_ask_for_larger_batches(world, family, examples):
    given = world.assignment(selection=WHOLE, tau=2)
    task, larger = (Task(replace(given, batch=batch), family.initial(1), 1) for batch in (1.0, 1.59))
    found = Trainer(family, LocalSettings(batch_size=10)).train(larger, examples, EVERYONE)
    exact = Trainer(family, LocalSettings(batch_size=15)).train(task, examples, EVERYONE)
    assert found.loss == exact.loss
    assert all(torch.equal(found.tensors[name], exact.tensors[name]) for name in found.tensors)


class Hands:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("until", "sizes"),
    [
        (None, [8, 8, 8, 8, 8, 8]),
        (9.0, [8, 8, 8, 8]),  # one second to begin with, then two for every step
        (8.0, [8, 8, 8, 4]),  # time for half of the fourth
        (7.4, [8, 8, 8]),  # a fifth of it is not worth a step
        (0.5, [8]),  # nobody knows beforehand how long the first takes
        (90.0, [8, 8, 8, 8, 8, 8]),
    ],
)
def test_a_client_goes_by_its_own_clock(monkeypatch, until, sizes):
    hands = Hands()
    monkeypatch.setattr("heroes.client.training.time.perf_counter", hands)
    clock, found = OwnClock(until), []
    hands.now += 1.0
    for batch in clock.watched(np.arange(48).reshape(6, 8)):
        hands.now += 2.0 * len(batch) / 8
        found.append(len(batch))
    assert found == sizes
    assert clock.steps == sum(sizes) / 8


def test_a_client_tells_what_it_did_by_its_own_clock_and_only_then(world, family, examples):
    settings = LocalSettings(batch_size=10, probes=0)
    given = world.assignment(3, round=8, selection=WHOLE, tau=4, learning_rate=0.1)
    trainer = Trainer(family, settings)

    def train(**changes):
        task = Task(replace(given, **changes), family.initial(1), 5)
        return trainer.train(task, examples, EVERYONE)

    whole = train()
    assert whole.steps is None
    hurried, free = train(until=0.0), train(until=600.0)
    assert (hurried.steps, free.steps) == (1.0, 8.0)  # at most twice as many as planned
    alone, twice = train(tau=1), train(tau=8)
    for one, other in ((hurried, alone), (free, twice)):
        assert all(torch.equal(one.tensors[name], tensor) for name, tensor in other.tensors.items())
        assert one.loss == other.loss


def test_the_last_step_may_take_part_of_a_batch(world, family, examples):
    seen = []

    class Watched(Examples):
        def batch(self, indices, device, rng=None):
            seen.append(len(indices))
            return super().batch(indices, device, rng)

    watched = Watched(examples.inputs, examples.targets)
    given = world.assignment(3, round=8, selection=WHOLE, tau=3, learning_rate=0.1, last=0.35)
    Trainer(family, LocalSettings(batch_size=10, probes=0)).train(
        Task(given, family.initial(1), 5), watched, EVERYONE
    )
    assert seen == [10, 10, 3]


@pytest.mark.parametrize("train_in", ["dense", "factors"])
def test_all_that_convolutions_compute_is_channels_last(train_in):
    """Also behind an image of one channel, whose memory could be called either."""
    model = Trainer(Family(build_digits, 2), LocalSettings(train_in=train_in)).loaded(
        Family(build_digits, 2).initial(1)
        if train_in == "factors"
        else Family(build_digits, 2).initial_weights(1),
        2,
    )
    seen = []
    for layer in model.module:
        if not isinstance(layer, (nn.Flatten, nn.Linear)):
            layer.register_forward_hook(lambda layer, _, out: seen.append(out.stride()[1]))
    model(torch.ones(3, 1, 8, 8).contiguous(memory_format=torch.channels_last))
    assert len(seen) == 11
    assert set(seen) == {1}
