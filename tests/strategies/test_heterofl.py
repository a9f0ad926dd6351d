"""HeteroFL: leading channels by width, the mean over holders, and the official code's extras."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import heroes
from heroes.assemble import Own
from heroes.assemble.clients import at_clients
from heroes.client.extras import LABELS
from heroes.client.optimisers import Sgd
from heroes.client.training import LocalSettings, Trainer
from heroes.data.digits import load_digits
from heroes.errors import ConfigError
from heroes.federation import Stop
from heroes.messages import Selection, Task
from heroes.models import char_rnn
from heroes.models.family import Family
from heroes.rounds import run
from heroes.settings.config import Config
from heroes.slices.cuts import cut_out


class Reader(nn.Module):
    """Letters in, the next letter out."""

    def __init__(self, width, recurrent):
        super().__init__()
        self.embedding = nn.Embedding(5, 2 * width)
        self.recurrent = recurrent(2 * width, 2 * width, batch_first=True)
        self.out = nn.Linear(2 * width, 5)

    def forward(self, x):
        return self.out(self.recurrent(self.embedding(x))[0][:, -1])


def convolutions(width):
    return nn.Sequential(
        nn.Conv2d(1, 2 * width, 3),
        nn.ReLU(),
        nn.Conv2d(2 * width, 3 * width, 3),
        nn.Flatten(),
        nn.Linear(12 * width, 5),
    )


def served(world, family, width, seed=0):
    """The global tensors, and what a client of this width gets of them."""
    strategy = world.strategy("heterofl", family=family)
    state = strategy.begin(seed)
    return state.tensors, cut_out(state.tensors, strategy.cut(strategy.selection(width)))


def test_a_client_gets_the_leading_channels_along_every_axis_that_grows(world):
    whole, part = served(world, world.family(), 2)
    assert torch.equal(part["0.weight"], whole["0.weight"][:6])
    assert torch.equal(part["0.bias"], whole["0.bias"][:6])
    assert torch.equal(part["2.weight"], whole["2.weight"][:4, :6])
    assert torch.equal(part["2.bias"], whole["2.bias"][:4])
    assert torch.equal(part["4.weight"], whole["4.weight"][:, :4])  # all classes
    assert torch.equal(part["4.bias"], whole["4.bias"])
    assert {name: tuple(value.shape) for name, value in part.items()} == world.family().weight_shapes(2)


def test_convolutions_keep_their_kernels_and_flattened_channels_their_positions(world):
    whole, part = served(world, world.family(build=convolutions), 1)
    assert torch.equal(part["0.weight"], whole["0.weight"][:2])
    assert torch.equal(part["2.weight"], whole["2.weight"][:3, :2])
    assert torch.equal(part["4.weight"], whole["4.weight"][:, :12])  # three channels of four positions


@pytest.mark.parametrize(("recurrent", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_keep_the_leading_units_of_every_gate(world, recurrent, gates):
    family = Family(lambda width: Reader(width, recurrent), 3)
    whole, part = served(world, family, 2)
    assert torch.equal(part["embedding.weight"], whole["embedding.weight"][:, :4])
    for name in ("recurrent.weight_ih_l0", "recurrent.weight_hh_l0"):
        assert torch.equal(part[name], whole[name].view(gates, 6, 6)[:, :4, :4].reshape(4 * gates, 4))
    for name in ("recurrent.bias_ih_l0", "recurrent.bias_hh_l0"):
        assert torch.equal(part[name], whole[name].view(gates, 6)[:, :4].reshape(-1))


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.GRU])
def test_a_narrow_reader_computes_what_the_whole_one_does_with_its_other_units_silent(world, recurrent):
    family = Family(lambda width: Reader(width, recurrent), 3)
    whole, part = served(world, family, 1, seed=3)
    silent = {name: value.clone() for name, value in whole.items()}
    for name in ("recurrent.weight_ih_l0", "recurrent.weight_hh_l0", "out.weight"):
        silent[name][:, 2:] = 0.0
    narrow, wide = family.dense(1), family.dense(3)
    narrow.load(part)
    wide.load(silent)
    letters = torch.tensor([[0, 3, 1, 4], [2, 2, 0, 1]])
    torch.testing.assert_close(narrow.module(letters), wide.module(letters))


def test_every_element_is_the_mean_over_those_who_hold_it(world):
    strategy = world.strategy("heterofl")
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 1e8, 2e8]))
    after, facts = strategy.aggregate(state, plan, world.answers(plan, strategy, state, [1.0, 5.0, 3.0]))
    wanted = torch.full((6, 9), 1.0)  # held by the widest alone
    wanted[:4, :6] = 2.0  # and by the next
    wanted[:2, :3] = 3.0  # and by all
    assert torch.equal(after.tensors["2.weight"], wanted)
    assert after.tensors["4.weight"].unique(dim=0).tolist() == [[3.0, 3.0, 2.0, 2.0, 1.0, 1.0]]
    assert after.tensors["4.bias"].tolist() == [3.0, 3.0, 3.0]
    assert (after.round, facts) == (1, {})


def test_elements_nobody_holds_keep_their_value(world):
    strategy = world.strategy("heterofl")
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([1e8, 1e8]))
    after, _ = strategy.aggregate(state, plan, world.answers(plan, strategy, state, [1.0, 3.0]))
    before, found = state.tensors["2.weight"], after.tensors["2.weight"]
    assert (found[:2, :3] == 2.0).all()
    assert torch.equal(found[2:], before[2:])
    assert torch.equal(found[:, 3:], before[:, 3:])


def test_widths_are_what_devices_afford_as_for_heroes_and_tau_is_fixed(world):
    cohort = world.cohort([4e8, 1e8, 3.2e8, 2e8, 1e6, 3e8, 1.5e8])
    strategy, heroes = world.strategy("heterofl", tau=9), world.strategy("heroes")
    plan = strategy.assign(strategy.begin(0), cohort)
    # steps of 1, 3 and 6 MFLOP within 20 ms: 50, 150 and 300 MFLOP/s; the slowest gets width 1 all the same
    assert [a.selection.width for a in plan.assignments] == [3, 1, 3, 2, 1, 3, 2]
    assert [a.selection.width for a in heroes.assign(heroes.begin(0), cohort).assignments] == [
        3,
        1,
        3,
        2,
        1,
        3,
        2,
    ]
    assert [a.selection.groups for a in plan.assignments[:4]] == [(0, 1, 2), (0,), (0, 1, 2), (0, 1)]
    assert {a.tau for a in plan.assignments} == {9}
    assert [a.bytes_up for a in plan.assignments[:4]] == [7000, 2000, 7000, 4000]


def trained(world, sent, share, width=1, **settings):
    """One step of a client of this width on all of its share."""
    strategy = world.strategy("heterofl")
    wanted = {"batch_size": 60, "optimiser": Sgd(0.0), "probes": 0, "train_in": "dense"} | settings
    trainer = Trainer(strategy.family, LocalSettings(**wanted))
    assignment = world.assignment(selection=strategy.selection(width), tau=1, learning_rate=0.5)
    return trainer, trainer.train(Task(assignment, sent, 1), world.examples(60), share)


def step_by_hand(world, sent, share, factor=1.0, held=(1.0, 1.0, 1.0)):
    examples = world.examples(60)
    w = {name: value.clone().requires_grad_() for name, value in sent.items()}
    hidden = torch.tanh(factor * (examples.inputs[share] @ w["0.weight"].T + w["0.bias"]))
    hidden = torch.tanh(factor * (hidden @ w["2.weight"].T + w["2.bias"]))
    scores = (hidden @ w["4.weight"].T + w["4.bias"]) * torch.tensor(held)
    loss = F.cross_entropy(scores, examples.targets[share])
    gradients = torch.autograd.grad(loss, list(w.values()))
    return float(loss.detach()), {
        name: w[name].detach() - 0.5 * g for name, g in zip(w, gradients, strict=True)
    }


def test_the_scaler_divides_hidden_activations_by_the_share_of_the_width_in_training_only(world):
    _, sent = served(world, world.family(), 1)
    share = np.arange(60)
    trainer, update = trained(world, sent, share, scaler=True)
    loss, wanted = step_by_hand(world, sent, share, factor=3.0)
    assert update.loss == pytest.approx(loss, rel=1e-5)
    for name, value in wanted.items():
        torch.testing.assert_close(update.tensors[name], value)
    model, inputs = trainer.model("dense", 1), world.examples(60).inputs
    model.load(sent)
    plain = world.family().dense(1)
    plain.load(sent)
    assert torch.equal(model.module.eval()(inputs), plain.module(inputs))
    assert not torch.equal(model.module.train()(inputs), plain.module(inputs))


def test_the_scaler_leaves_the_full_width_alone(world):
    whole, sent = served(world, world.family(), 3)
    one, two = (trained(world, sent, np.arange(60), width=3, scaler=on)[1] for on in (False, True))
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in whole)


def test_masked_labels_score_zero_and_their_rows_do_not_move(world):
    _, sent = served(world, world.family(), 1)
    share = np.array([n for n in range(60) if n % 3 != 1])  # holds classes 0 and 2
    _, update = trained(world, sent, share, mask_absent_labels=True)
    loss, wanted = step_by_hand(world, sent, share, held=(1.0, 0.0, 1.0))
    assert update.loss == pytest.approx(loss, rel=1e-5)
    for name, value in wanted.items():
        torch.testing.assert_close(update.tensors[name], value)
    for name in ("4.weight", "4.bias"):
        moved = [not torch.equal(update.tensors[name][row], sent[name][row]) for row in range(3)]
        assert moved == [True, False, True]
    _, free = trained(world, sent, share)
    assert not torch.equal(free.tensors["4.bias"][1], sent["4.bias"][1])
    assert update.extras == free.extras == {}  # they travel only when asked for
    assert trained(world, sent, share, sends=(LABELS,))[1].extras["labels"].tolist() == [0, 2]


def test_label_split_averages_a_row_of_the_classifier_over_the_owners_of_its_class(world):
    strategy = world.strategy("heterofl", label_split=True)
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8, 1e8, 4e8]))  # widths 3, 1, 3
    made = world.answers(plan, strategy, state, [1.0, 3.0, 8.0])
    answers = [
        (a, replace(u, extras={"labels": torch.tensor(owned)}))
        for (a, u), owned in zip(made, [(0,), (0, 1), (1,)], strict=True)
    ]
    after, _ = strategy.aggregate(state, plan, iter(answers))
    weight, bias, before = after.tensors["4.weight"], after.tensors["4.bias"], state.tensors
    assert weight[0].tolist() == [
        2.0,
        2.0,
        1.0,
        1.0,
        1.0,
        1.0,
    ]  # the first two clients; only the first is wide
    assert weight[1].tolist() == [5.5, 5.5, 8.0, 8.0, 8.0, 8.0]
    assert torch.equal(weight[2], before["4.weight"][2])  # nobody's class
    assert bias[:2].tolist() == [2.0, 5.5]
    assert bias[2] == before["4.bias"][2]
    assert (after.tensors["0.weight"][:3] == 4.0).all()  # everything else over all holders
    without, _ = world.strategy("heterofl").aggregate(state, plan, iter(answers))
    assert without.tensors["4.bias"].tolist() == [4.0, 4.0, 4.0]


class Tied(Reader):
    """The embedding is the output layer's weight, too."""

    def __init__(self, width):
        super().__init__(width, nn.RNN)
        self.out.weight = self.embedding.weight


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (
            lambda width: nn.Sequential(nn.Linear(4, 3 * width), nn.Linear(3 * width, 7)),
            ("1.weight", "1.bias"),
        ),
        (
            lambda width: nn.Sequential(nn.Linear(4, 3 * width), nn.Linear(3 * width, 7, bias=False)),
            ("1.weight",),
        ),
        (lambda width: Reader(width, nn.LSTM), ("out.weight", "out.bias")),
        (convolutions, ("4.weight", "4.bias")),
        (Tied, ("embedding.weight", "out.bias")),
        (lambda width: nn.Linear(4, 3 * width), ()),
    ],
)
def test_the_classifier_is_found_by_its_shape(build, names):
    assert Family(build, 2).classifier == names


def test_the_scaler_is_refused_where_there_is_nothing_to_scale(world):
    config = Config().changed({"strategy.name": "heterofl", "federation.clients": 12})
    own = Own(char_rnn.build, world.data())
    at_clients(config, own)
    with pytest.raises(ConfigError, match=r"strategy\.scaler is true, .* this model has none; use false"):
        at_clients(config.changed({"strategy.scaler": True}), own)


def test_all_extras_together_from_the_configuration(world):
    federation = world.assembled(
        "heterofl", {f"strategy.{extra}": True for extra in ("scaler", "mask_absent_labels", "label_split")}
    )
    settings = federation.engine.trainer.settings
    assert (settings.scaler, settings.mask_absent_labels, settings.sends) == (True, True, (LABELS,))
    *_, (_, last) = run(federation, Stop(6))
    assert last.accuracy > 0.6
    plain = world.assembled("heterofl").engine.trainer.settings
    assert (plain.scaler, plain.mask_absent_labels, plain.sends, plain.train_in) == (
        False,
        False,
        (),
        "dense",
    )


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.int64])
def test_labels_may_be_kept_in_any_whole_numbers(kind):
    config = heroes.recipes.digits(rounds=1, strategy="heterofl").changed(
        {"strategy.label_split": True, "strategy.mask_absent_labels": True, "strategy.tau": 1}
    )
    train, test = (replace(part, targets=part.targets.to(kind)) for part in load_digits())
    (entry,) = heroes.run(config, data=(train, test)).records
    assert entry.lost == {}
    assert entry.abandoned == ()


def test_three_golden_rounds(world):
    state, entries = world.three_rounds(world.strategy("heterofl"))
    assert [[(c.client, c.width, c.tau) for c in entry.clients] for entry in entries] == [
        [(1, 3, 6), (2, 2, 6), (7, 1, 6), (8, 2, 6)],
        [(3, 3, 6), (4, 3, 6), (10, 1, 6), (11, 3, 6)],
        [(2, 2, 6), (3, 3, 6), (6, 3, 6), (10, 1, 6)],
    ]
    assert entries[0].clients[3].groups == (0, 1)
    assert [entry.traffic for entry in entries] == [34400, 80800, 121200]
    assert [entry.loss for entry in entries] == pytest.approx([1.081770, 0.850159, 0.674146], rel=1e-3)
    assert [entry.seconds for entry in entries] == pytest.approx([0.123567, 0.270833, 0.404584], rel=1e-3)
    norms = [float(state.tensors[name].norm()) for name in ("0.weight", "2.weight", "4.weight", "4.bias")]
    assert norms == pytest.approx([2.044868, 2.072146, 1.744958, 0.253320], rel=1e-3)
    assert world.strategy("heterofl").selection(2) == Selection(2, (0, 1), (0, 1, 3, 4))
