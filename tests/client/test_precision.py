"""bfloat16 is a way to compute: what is moved, sent and measured stays float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import heroes
from heroes.client import precision
from heroes.client.evaluation import evaluate
from heroes.client.objectives import CLASSIFICATION
from heroes.client.optimisers import AdamW, Sgd
from heroes.client.training import LocalSettings, Trainer
from heroes.data import Examples
from heroes.messages import Task
from heroes.models import char_rnn, cnn, digits_cnn, resnet, vit
from heroes.models.family import Family
from heroes.settings.recipes import recipe
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out

CPU = torch.device("cpu")
EVERYONE = np.arange(12)
MODELS = {
    "cnn": (lambda width: cnn.build(width, 2), (3, 32, 32)),
    "digits": (digits_cnn.build, (1, 8, 8)),
    "resnet": (lambda width: resnet.build(width, 8, 10, small_images=True), (3, 16, 16)),
    "rnn": (lambda width: char_rnn.build(width, 8, 10), (9,)),
    "lstm": (lambda width: char_rnn.build(width, 8, 10, "lstm"), (9,)),
    "gru": (lambda width: char_rnn.build(width, 8, 10, "gru"), (9,)),
    "vit": (lambda width: vit.build(width, 8, depth=1), (3, 32, 32)),
}


def examples_of(shape):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(10, (12, *shape), generator=generator)
    return Examples(inputs if len(shape) == 1 else inputs.float() / 5, torch.arange(12) % 10)


def trained(world, name, train_in, in_what, learning_rate=0.01, **changes):
    build, shape = MODELS[name]
    family = Family(build, 2)
    sent = cut_out(family.initial(1), family.cut(grid_selection((0, 1), 2)))
    sent = dict(family.plain_weights(sent)) if train_in == "dense" else sent
    settings = LocalSettings(
        **({"batch_size": 12, "train_in": train_in, "precision": in_what, "probes": 0} | changes)
    )
    task = Task(
        world.assignment(3, selection=grid_selection((0, 1), 2), tau=3, learning_rate=learning_rate), sent, 5
    )
    return sent, Trainer(family, settings).train(task, examples_of(shape), EVERYONE)


def moved(sent, update):
    return torch.cat([(update.tensors[name] - sent[name]).flatten() for name in sent])


@pytest.mark.parametrize("train_in", ["dense", "factors", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_steps_in_bfloat16_are_those_in_float32_but_for_rounding(world, name, train_in):
    sent, exact = trained(world, name, train_in, "float32")
    _, rounded = trained(world, name, train_in, "bfloat16")
    _, again = trained(world, name, train_in, "bfloat16")
    assert {tensor.dtype for tensor in rounded.tensors.values()} == {torch.float32}
    assert all(torch.equal(again.tensors[key], value) for key, value in rounded.tensors.items())
    one, other = moved(sent, exact), moved(sent, rounded)
    assert not torch.equal(one, other)  # it was computed in bfloat16
    assert float(F.cosine_similarity(one, other, dim=0)) > 0.97
    assert rounded.loss == pytest.approx(exact.loss, rel=0.02)


@pytest.mark.parametrize("optimiser", [Sgd(0.9, 0.01), AdamW()])
def test_what_is_moved_stays_float32(world, optimiser):
    """Steps of a millionth would vanish if weights were bfloat16 themselves."""
    sent, update = trained(world, "cnn", "dense", "bfloat16", learning_rate=1e-6, optimiser=optimiser)
    weights = [name for name in sent if name.endswith("0.weight")]
    assert weights
    for name in weights:
        change = (update.tensors[name] - sent[name]).abs().max()
        assert 0 < float(change) < 1e-3 * float(sent[name].abs().max())


def test_tests_are_in_bfloat16_where_training_is(world):
    build, shape = MODELS["cnn"]
    family, data = Family(build, 2), examples_of(shape)
    tensors = family.initial(1)
    scores = {
        in_what: evaluate(
            Trainer(family, LocalSettings(precision=in_what)).loaded(tensors, 2), data, 5, CPU, CLASSIFICATION
        )
        for in_what in ("float32", "bfloat16")
    }
    assert scores["float32"].loss != scores["bfloat16"].loss
    assert scores["float32"].loss == pytest.approx(scores["bfloat16"].loss, rel=0.01)


def test_outputs_are_float32_so_that_losses_of_ones_own_need_not_know(world):
    model = Trainer(Family(MODELS["digits"][0], 2), LocalSettings(precision="bfloat16")).model("dense", 1)
    assert model(torch.ones(2, 1, 8, 8)).dtype == torch.float32


def test_estimates_of_clients_are_float32_whatever_training_is(world):
    """At the received weights both see the same gradients."""
    found = [
        trained(world, "cnn", "factors", in_what, batch_size=4, probes=2)[1].measured
        for in_what in ("float32", "bfloat16")
    ]
    assert found[0]["gradient"] == found[1]["gradient"]
    assert found[0]["variance"] == found[1]["variance"]


@pytest.mark.parametrize(
    ("there", "flops", "wanted"),
    [(True, 2e9, "bfloat16"), (True, 1e7, "float32"), (False, 2e9, "float32")],
)
def test_auto_is_bfloat16_where_the_processor_has_it_and_the_model_is_large(
    monkeypatch, there, flops, wanted
):
    monkeypatch.setattr(precision, "in_hardware", lambda device: there)
    assert precision.settled("auto", CPU, flops) == wanted
    assert precision.settled("float32", CPU, flops) == "float32"
    assert precision.settled("bfloat16", CPU, flops) == "bfloat16"


def small(**changes):
    wanted = {"federation.clients": 6, "federation.cohort": 3, "federation.rounds": 2, "training.probes": 0}
    return recipe("digits", "heroes").changed(wanted | changes)


@pytest.mark.parametrize(("enough", "became"), [(1.0, "bfloat16"), (1e20, "float32")])
def test_a_run_keeps_what_auto_became_and_goes_on_in_it(tmp_path, monkeypatch, enough, became):
    monkeypatch.setattr(precision, "in_hardware", lambda device: True)
    monkeypatch.setattr(precision, "ENOUGH", enough)
    changes = {"training.precision": "auto", "engine.name": "in_process"}
    done = heroes.run(small(**changes), out=tmp_path / "auto")
    assert done.config.training.precision == became
    assert f'precision = "{became}"' in (tmp_path / "auto" / "config.toml").read_text()
    asked = heroes.run(small(**changes | {"training.precision": became}), out=tmp_path / "asked")
    assert done.records == asked.records
    monkeypatch.setattr(precision, "in_hardware", lambda device: False)
    said = []
    went_on = heroes.resume(
        tmp_path / "auto", {"federation.rounds": 3}, on_progress=lambda what, *_: said.append(what)
    )
    assert went_on.config.training.precision == became
    assert (became == "bfloat16") == any("has no bfloat16 in hardware" in line for line in said)


def test_bfloat16_has_the_same_bits_in_worker_processes(tmp_path):
    changes = {"training.precision": "bfloat16"}
    one = heroes.run(small(**changes, **{"engine.name": "in_process"}))
    other = heroes.run(small(**changes, **{"engine.workers": 2}))
    assert one.records == other.records
    assert all(torch.equal(one.state.tensors[name], t) for name, t in other.state.tensors.items())
