"""Batch norms: what they keep is gathered for every model that is tested, loaded, exported or handed out."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import heroes
from heroes import recipes
from heroes.client.gathering import Gathering
from heroes.data import DrawnShares, FederatedData, Shares, WholeShares
from heroes.data.digits import load_digits
from heroes.errors import ConfigError, TrainingError
from heroes.models.family import Family
from heroes.models.statistics import at_hand, keepers

CHANGES = {"model.norm": "batch", "federation.rounds": 6, "engine.name": "in_process", "evaluation.every": 3}
CONFIG = recipes.digits().changed(CHANGES)


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> heroes.Run:
    return heroes.run(CONFIG, out=tmp_path_factory.mktemp("run") / "run")


def one_by_one(module: nn.Module) -> float:
    """The accuracy on the test set, an image at a time, as on a device."""
    test = load_digits()[1]
    inputs, targets = test.batch(np.arange(len(test)), torch.device("cpu"))
    with torch.no_grad():
        said = torch.cat([module(image) for image in inputs.split(1)]).argmax(1)
    return float((said == targets).double().mean())


def own(width: int) -> nn.Module:
    """A module as people write them, with ordinary batch norms."""
    return nn.Sequential(
        nn.Conv2d(1, 4 * width, 3, padding=1),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.Conv2d(4 * width, 4 * width, 3, padding=1),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(4 * width * 64, 10),
    )


def test_statistics_are_those_of_the_inputs_by_hand() -> None:
    family = Family(lambda w: nn.Sequential(nn.Conv2d(1, 2 * w, 3), nn.BatchNorm2d(2 * w)), 2)
    inputs = torch.randn(40, 1, 5, 5, generator=torch.Generator().manual_seed(1)) * 3 + 1
    tensors = family.initial_weights(5)
    kept = Gathering(family, inputs)(tensors, 2)
    outputs = F.conv2d(inputs, tensors["0.weight"], tensors["0.bias"])
    torch.testing.assert_close(kept["1.running_mean"], outputs.mean((0, 2, 3)))
    torch.testing.assert_close(kept["1.running_var"], outputs.var((0, 2, 3)))
    assert tuple(kept) == family.kept_names
    assert {name: tuple(tensor.shape) for name, tensor in kept.items()} == family.kept_shapes(2)


def test_a_model_that_fails_where_they_are_gathered_is_told_in_a_sentence() -> None:
    family = Family(lambda w: nn.Sequential(nn.Linear(3, 2 * w), nn.BatchNorm1d(2 * w)), 2)
    with pytest.raises(TrainingError, match=r"could not be tested: .*more than 1 value per channel"):
        Gathering(family, torch.ones(1, 3))(family.initial_weights(0), 2)


def test_only_batch_norms_take_the_batch_at_hand_where_nothing_is_trained() -> None:
    module = at_hand(own(1))
    assert [type(m) for m in module.modules() if m.training] == [nn.BatchNorm2d, nn.BatchNorm2d]
    assert not keepers(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.GroupNorm(1, 3)))


def test_every_width_does_on_single_images_what_its_test_said(ended) -> None:
    last = ended.records[-1]
    assert last.accuracy > 0.6
    assert len(last.score_by_width) == 4
    for width, score in last.score_by_width.items():
        assert one_by_one(ended.model(width)) == pytest.approx(score, abs=0.003)


def test_workers_give_the_same_bits(ended, tmp_path) -> None:
    heroes.run(CONFIG.changed({"engine.name": "processes", "engine.workers": 2}), out=tmp_path / "run")
    for file in ("records.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (ended.folder / file).read_bytes()


def test_a_run_is_loaded_with_its_statistics_also_where_the_data_is_gone(ended, monkeypatch) -> None:
    monkeypatch.setattr("heroes.assemble.serving._data", lambda *_: pytest.fail("the data was read"))
    for width in ended.widths:
        mine, loaded = (one.model(width).state_dict() for one in (ended, heroes.load(ended.folder)))
        assert mine.keys() == loaded.keys()
        assert all(torch.equal(mine[name], loaded[name]) for name in mine)


@pytest.mark.parametrize("flaw", ["none", "a width", "another shape", "no file"])
def test_statistics_that_a_folder_lacks_are_gathered_again(ended, flaw, tmp_path) -> None:
    folder, path = tmp_path / "copy", tmp_path / "copy" / "model.safetensors"
    shutil.copytree(ended.folder, folder)
    with heroes.runs.final.safe_open(path, "pt") as file:
        about = file.metadata()
    tensors = load_file(path)
    kept = {name for name in tensors if "@width" in name}
    assert len(kept) == 4 * len(ended.federation.family.kept_names)
    lost = {"none": kept, "a width": {n for n in kept if n.endswith("2")}}.get(flaw, set())
    tensors = {name: tensor for name, tensor in tensors.items() if name not in lost}
    if flaw == "another shape":
        tensors[min(kept)] = torch.zeros(3)
    save_file(tensors, path, about)
    if flaw == "no file":
        path.unlink()
    mine, loaded = (one.model(2).state_dict() for one in (ended, heroes.load(folder)))
    assert all(torch.equal(mine[name], loaded[name]) for name in mine)


def test_an_exported_model_has_its_statistics(ended, tmp_path) -> None:
    made = ended.export(tmp_path / "narrow.safetensors", width=1)
    assert made.difference < 1e-5
    module = ended.federation.family.dense(1).module
    module.load_state_dict(load_file(made.path))
    assert one_by_one(module.eval()) == pytest.approx(ended.records[-1].score_by_width[1], abs=0.003)


@pytest.mark.parametrize("strategy", ["heroes", "heterofl"])
def test_a_model_of_ones_own_may_have_ordinary_batch_norms(strategy) -> None:
    config = recipes.digits(strategy=strategy).changed({**CHANGES, "model.norm": "group"})
    done = heroes.run(config, model=own)
    assert done.records[-1].accuracy > 0.5
    assert one_by_one(done.model()) == pytest.approx(done.records[-1].accuracy, abs=0.003)


def test_noise_cannot_protect_what_statistics_are_gathered_from() -> None:
    private = {"privacy.noise": 1.0, "strategy.pace": "constant"}
    with pytest.raises(ConfigError, match=r"privacy\.noise is 1\.0.*use model\.norm = 'group'"):
        heroes.run(CONFIG.changed(private))


def test_statistics_are_gathered_from_what_clients_own() -> None:
    train, test = load_digits()
    rng = np.random.default_rng(3)
    few = FederatedData(train, test, Shares.of([np.array([5, 9]), np.array([2, 9])]))
    assert few.some(10, rng).tolist() == [2, 5, 9]
    assert set(few.some(2, rng).tolist()) < {2, 5, 9}
    drawn = DrawnShares(3, 2, 0, Shares.of([np.array([4, 7]), np.array([1])]), lambda *_: np.array([1, 1]))
    assert FederatedData(train, test, drawn).some(10, rng).tolist() == [1, 4, 7]
    assert FederatedData(train, test, WholeShares(3, 8)).some(len(train), rng).tolist() == list(
        range(len(train))
    )
