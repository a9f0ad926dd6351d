"""Runs that are read from their folders."""

import json
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from representatives import representatives, steps
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import heroes
from heroes.errors import ConfigError, DataError, HeroesError, RunFolderError
from heroes.settings.config import Config


def small(**changes: object) -> Config:
    return heroes.recipes.digits(rounds=2).changed(
        {"training.probes": 0, "federation.cohort": 4, "engine.name": "in_process", **changes}
    )


def same(one: nn.Module, other: nn.Module) -> bool:
    tensors = other.state_dict()
    return all(torch.equal(tensor, tensors[name]) for name, tensor in one.state_dict().items())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> heroes.Run:
    """Two rounds, as they were trained."""
    return heroes.run(small(**{"checkpoint.every": 1}), out=tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def folder(run: heroes.Run, tmp_path: Path) -> Path:
    """Its folder, which a test may spoil."""
    assert run.folder is not None
    return Path(shutil.copytree(run.folder, tmp_path / "run"))


@pytest.mark.parametrize("strategy", representatives())
def test_a_loaded_run_has_the_models_records_and_summary_of_the_run(strategy: str, tmp_path: Path) -> None:
    few = {"federation.rounds": 1, "federation.cohort": 3, "engine.name": "in_process"}
    config = heroes.recipes.recipe("digits", strategy).changed(few | steps(strategy, 3))
    run = heroes.run(config, out=tmp_path)
    loaded = heroes.load(tmp_path)
    assert loaded.records == run.records
    assert loaded.summary() == run.summary()
    assert loaded.widths == run.widths
    assert all(same(loaded.model(width), run.model(width)) for width in run.widths)


def test_a_model_is_loaded_without_its_data(
    run: heroes.Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise DataError("the data is not here")

    monkeypatch.setattr("heroes.assemble.serving.dataset", gone)
    loaded = heroes.load(folder)
    assert same(loaded.model(1), run.model(1))
    made = loaded.export(tmp_path / "model.pt")
    assert made.difference < 1e-5
    assert made.tried == "8 drawn inputs, since the data is not here"
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match="not here"):
        heroes.load(folder).model(1)


def test_an_unfinished_run_has_the_model_of_its_last_checkpoint(
    run: heroes.Run, folder: Path, tmp_path: Path
) -> None:
    (folder / "model.safetensors").unlink()
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text(lines[0])
    (newest,) = (folder / "checkpoints").glob("*2.safetensors")
    newest.unlink()
    loaded = heroes.load(folder)
    assert loaded.served.round == 1
    assert loaded.summary().stopped is None
    assert not same(loaded.model(), run.model())
    assert loaded.export(tmp_path / "x.safetensors").about["round"] == 1


def test_a_checkpoint_that_is_newer_than_the_model_is_taken(run: heroes.Run, folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "pt") as file:
        about = file.metadata()["heroes"]
    blank = {name: torch.zeros_like(t) for name, t in load_file(folder / "model.safetensors").items()}
    save_file(blank, folder / "model.safetensors", {"heroes": about.replace('"round": 2', '"round": 1')})
    assert same(heroes.load(folder).model(), run.model())


def test_the_average_is_served_from_a_checkpoint_too(tmp_path: Path) -> None:
    run = heroes.run(small(**{"evaluation.average": 0.9}), out=tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert same(heroes.load(tmp_path).model(), run.model())


class Mine(nn.Module):
    def __init__(self, width: int, size: int = 8) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(64, size * width), nn.Linear(size * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.hidden(x.flatten(1))))
        return out


@cache
def own_digits() -> tuple[heroes.Examples, heroes.Examples]:
    return heroes.data.load_digits()


def test_a_model_of_the_user_s_own_must_be_given_again(tmp_path: Path) -> None:
    run = heroes.run(small(), model=Mine, data=own_digits(), out=tmp_path)
    loaded = heroes.load(tmp_path)
    assert loaded.summary().rounds == 2
    with pytest.raises(ConfigError, match=r"heroes.load\(folder, model=build\)"):
        loaded.model()
    again = heroes.load(tmp_path, model=Mine)
    assert same(again.model(1), run.model(1))
    assert again.export(tmp_path / "own.pt", 1).difference < 1e-5
    with pytest.raises(RunFolderError, match="`model` is not the one that was trained"):
        heroes.load(tmp_path, model=lambda width: Mine(width, 6)).model()


def test_the_model_file_says_what_it_is(run: heroes.Run, folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["heroes"])
    assert (about["experiment"], about["strategy"], about["round"]) == ("digits", "heroes", 2)
    assert about["widths"] == [1, 2, 3, 4]
    assert (about["model"], about["classes"]) == ("digits_cnn", 10)
    assert about["inputs"] == {"shape": [1, 8, 8], "dtype": "float32"}
    assert about["score"] == run.summary().score


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 40])
def test_a_damaged_model_is_told(content: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(RunFolderError, match="heroes resume writes it again"):
        heroes.load(folder).model()


@pytest.mark.parametrize(
    "about",
    [
        "[]",
        "nonsense",
        '{"round": "two", "arguments": {"classes": "ten"}}',
        '{"arguments": {"width": 3}}',
        '{"arguments": {"classes": -1}}',
        '{"arguments": {"image": 8, "classes": 11}}',
    ],
)
def test_a_model_whose_metadata_was_changed_is_loaded_or_refused(
    about: str, run: heroes.Run, folder: Path
) -> None:
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors", {"heroes": about})
    try:
        model = heroes.load(folder).model()
    except HeroesError:
        return
    assert same(model, run.model())


def test_what_is_no_run_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run folder"):
        heroes.load(tmp_path)


def test_runs_and_summaries_show_themselves_in_a_few_words(run: heroes.Run, folder: Path) -> None:
    for each in (run, heroes.load(folder)):
        assert "digits, heroes, seed 0, 2 rounds, accuracy" in repr(each)
        assert len(repr(each)) < 300
        assert each._repr_html_().startswith("<table><tr><th>run</th><td>digits, heroes, seed 0</td>")
        assert len(each._repr_html_()) < 3000
    assert "<th>rounds</th><td>2 (all rounds done)</td>" in run.summary()._repr_html_()
    assert len(repr(run.summary())) < 1500


def test_frames_have_a_row_for_every_round_and_every_client(tmp_path: Path) -> None:
    run = heroes.run(small(**{"faults.dropout": 0.3}), out=tmp_path)
    rounds, clients = heroes.load(tmp_path).to_frame(), run.clients_frame()
    assert rounds.index.tolist() == [1, 2]
    assert rounds["accuracy"].tolist() == [record.accuracy for record in run.records]
    assert rounds["lost"].tolist() == [len(record.missing) for record in run.records]
    assert len(clients) == sum(len(record.clients) for record in run.records)
    assert clients["lost"].notna().sum() == rounds["lost"].sum() > 0


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HeroesError, match=r"pip install 'heroes-fl\[frames\]'"):
        heroes.load(folder).to_frame()
