"""Rounds as TensorBoard, MLflow and Weights & Biases keep them, read back by their own packages."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import heroes
from heroes.errors import ConfigError
from heroes.runs.dashboards import numbers
from heroes.runs.trackers import TRACKERS

SMALL = {
    "federation.clients": 4,
    "federation.cohort": 2,
    "federation.rounds": 2,
    "model.max_width": 1,
    "data.test_limit": 30,
    "training.device": "cpu",
    "engine.name": "in_process",
}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> heroes.Config:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return heroes.recipes.digits().changed(SMALL)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        name: [(each.step, each.value) for each in events.Scalars(name)] for name in events.Tags()["scalars"]
    }


def test_numbers_are_plain_and_have_no_gaps_of_none(config: heroes.Config) -> None:
    run = heroes.run(config.changed({"evaluation.every": 2}))
    first, second = map(numbers, run.records)
    assert second["test/accuracy"] == run.records[1].score
    assert "test/accuracy" not in first
    assert first["clients"] == 2
    assert all(type(value) is float for value in first.values())


def test_tensorboard_has_every_round_once_also_after_a_resume(config: heroes.Config, tmp_path: Path) -> None:
    heroes.run(config.changed({"tracking.trackers": ["tensorboard"]}), out=tmp_path)
    run = heroes.resume(tmp_path, {"federation.rounds": 3})  # the configuration says who hears of it
    found = scalars(tmp_path)
    assert [step for step, _ in found["loss"]] == [1, 2, 3]
    for record in run.records:
        for name, value in numbers(record).items():
            assert dict(found[name])[record.round] == pytest.approx(value, rel=1e-6), name


def test_a_missing_extra_is_said_before_the_run_begins(
    config: heroes.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(ConfigError, match=rf"pip install 'heroes-fl\[{name}\]'"):
            heroes.run(config, out=tmp_path / name, track=name)
        assert not (tmp_path / name).exists()


def test_a_tracker_without_a_folder_is_left_out_with_a_warning(config: heroes.Config) -> None:
    with pytest.warns(RuntimeWarning, match="'tensorboard' failed .* needs a run folder; give out="):
        run = heroes.run(config, track="tensorboard")
    assert len(run.records) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what MLflow calls of SQLAlchemy
def test_mlflow_goes_on_with_its_run(config: heroes.Config, tmp_path: Path) -> None:
    import mlflow

    heroes.run(config, out=tmp_path, track="mlflow")
    run = heroes.resume(tmp_path, {"federation.rounds": 3}, track="mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = [each for each in client.search_experiments() if each.name == "heroes digits"]
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["federation.clients"] == "4"
    for name, values in _by_name(run).items():
        told = [(each.step, each.value) for each in client.get_metric_history(kept.info.run_id, name)]
        assert told == values, name


@pytest.mark.slow
def test_wandb_writes_offline_and_goes_on_with_the_same_id(config: heroes.Config, tmp_path: Path) -> None:
    heroes.run(config, out=tmp_path, track="wandb")
    run = heroes.resume(tmp_path, {"federation.rounds": 3}, track="wandb")
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    assert len({path.stem for path in files}) == 1  # the id
    told: dict[str, list[tuple[int, float]]] = {}
    for path in files:
        _read_history(path, told)
    assert {name: told[name] for name in _by_name(run)} == _by_name(run)


def _by_name(run: Any) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for record in run.records:
        for name, value in numbers(record).items():
            found.setdefault(name, []).append((record.round, value))
    return found


def _read_history(path: Path, told: dict[str, list[tuple[int, float]]]) -> None:
    """Add what a file of wandb holds: a head of 7 bytes, then blocks of 32 KiB as LevelDB's log has them."""
    from wandb.proto import wandb_internal_pb2

    raw, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(raw):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        size, kind = struct.unpack_from("<HB", raw, place + 4)  # after the checksum
        whole += raw[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record.FromString(whole)
            whole = b""
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    told.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))


def test_every_tracker_has_a_line_in_the_cookbook() -> None:
    text = (Path(__file__).parents[2] / "docs/cookbook.md").read_text(encoding="utf-8")
    assert [name for name in TRACKERS if f"| `{name}` |" not in text] == []
