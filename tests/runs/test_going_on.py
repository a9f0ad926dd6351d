"""A run goes on only as itself: files that were cut off, edited or mixed up are refused by name, and a
finished run whose process was killed too early gets what it lacks.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import command_line
import pytest
from safetensors import safe_open

import heroes
from heroes.errors import ConfigError, HeroesError
from heroes.runs import configured, contents
from heroes.runs.checkpoints import found
from heroes.runs.folder import CHECKPOINTS
from heroes.settings.config import Config
from heroes.settings.recipes import recipe

TINY = {
    "engine.name": "in_process",
    "federation.clients": 4,
    "federation.cohort": 2,
    "federation.rounds": 3,
    "model.max_width": 2,
    "data.test_limit": 20,
    "strategy.tau_first": 2,
}
MORE = {"federation.rounds": 4}


def config(**changes: object) -> Config:
    return recipe("digits", "heroes").changed(TINY | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    heroes.run(config(), out=folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A finished run of three rounds that a test may spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(folder: Path, said: str) -> None:
    """Going on is refused with these words, and nothing in the folder changes."""
    before = contents_of(folder)
    with pytest.raises(HeroesError, match=said) as caught:
        heroes.resume(folder, MORE)
    assert "\n" not in str(caught.value)
    assert contents_of(folder) == before


# config.toml


def test_a_configuration_that_is_empty_is_refused(folder: Path) -> None:
    (folder / "config.toml").write_text("")
    refused(
        folder, r"config\.toml of .* lacks experiment, seed, federation\.clients and \d+ more; it was cut off"
    )


def test_a_configuration_cut_off_anywhere_is_refused(folder: Path) -> None:
    path = folder / "config.toml"
    lines = path.read_text().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        if not lines[kept].strip() or lines[kept].startswith("["):
            continue
        path.write_text("".join(lines[:kept]))
        refused(folder, r"config\.toml of .* lacks \w")


def test_a_configuration_without_one_key_is_refused_by_its_name(folder: Path) -> None:
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("rounds = 3\n", ""))
    refused(folder, r"lacks federation\.rounds; it was cut off or edited")


def test_a_configuration_of_0_1_0_that_was_cut_off_is_refused(folder: Path) -> None:
    path = folder / "config.toml"
    path.write_text(path.read_text().split("\n", 1)[1].partition("[checkpoint]")[0])
    refused(folder, r"lacks checkpoint\.every, engine\.name, engine\.workers and 6 more")


def test_a_configuration_from_before_a_key_was_invented_is_read(folder: Path) -> None:
    path = folder / "config.toml"
    first, _, rest = path.read_text().partition("\n")
    number = int(first.split()[2])
    text = rest.replace("beta2 = 0.999\n", "", 1)
    path.write_text(f"# all {number - 1} settings of this run\n{text}")
    assert len(heroes.resume(folder, MORE).records) == 4
    assert path.read_text().startswith(first)


def test_what_does_not_change_is_not_written_again(folder: Path) -> None:
    (folder / CHECKPOINTS / "round-0000003.safetensors").unlink()  # as after a kill in the last round
    watched = [folder / "config.toml", folder / "environment.json"]
    before = [path.stat().st_ino for path in watched]
    heroes.resume(folder)
    assert [path.stat().st_ino for path in watched] == before


# checkpoints


@pytest.mark.parametrize(
    ("line", "edited", "said"),
    [
        ("seed = 0", "seed = 7", "seed is 7 in config.toml but was 0"),
        ("learning_rate = 0.2", "learning_rate = 0.1", "training.learning_rate is 0.1 in .* but was 0.2"),
        ("max_width = 2", "max_width = 3", "model.max_width is 3 in config.toml but was 2"),
        ('blocks = "nested"', 'blocks = "free"', "strategy.blocks is 'free' in config.toml but was 'nested'"),
    ],
)
def test_an_edited_configuration_is_refused_by_its_key(
    folder: Path, line: str, edited: str, said: str
) -> None:
    text = (folder / "config.toml").read_text()
    assert f"\n{line}\n" in text
    (folder / "config.toml").write_text(text.replace(f"\n{line}\n", f"\n{edited}\n"))
    refused(folder, said)


def test_the_checkpoint_of_another_run_is_refused(folder: Path, tmp_path: Path) -> None:
    heroes.run(config(seed=9), out=tmp_path / "other")
    shutil.copytree(tmp_path / "other" / CHECKPOINTS, folder / CHECKPOINTS, dirs_exist_ok=True)
    refused(folder, "seed is 0 in config.toml but was 9")


def test_a_checkpoint_under_the_name_of_another_round_is_refused(folder: Path) -> None:
    newest, older = found(folder / CHECKPOINTS)
    shutil.copy(older, newest)
    older.unlink()
    refused(folder, "its name says round 3, but it is of round 2")


def sealed(folder: Path, **changes: object) -> None:
    """The last checkpoint with another description and a right digest."""
    newest, older = found(folder / CHECKPOINTS)
    older.unlink()
    with safe_open(newest, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        values = json.loads(file.metadata()["state"]) | changes
    text = json.dumps(values)
    newest.write_bytes(
        contents.save(tensors, metadata={"state": text, "digest": contents.digest(text, tensors)})
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory": {"counters": [1, 2, 3]}}, "what its strategy remembers cannot be of a run with this"),
        ({"memory": {"counters": [1, 2, 3, -4]}}, "what its strategy remembers cannot be of a run with this"),
        ({"memory": {"counters": [1, 2, 3, 2**70]}}, "does not fit into 64 bits"),
        ({"memory": {"counters": 5}}, "counters is 5: it should be a valid tuple"),
        ({"memory": None}, "damaged"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"seconds": "1"}, "seconds is '1'"),
        ({"bytes_up": -5}, "bytes_up is -5"),
        ({"bytes_down": 2**70}, "bytes_down is 1180591620717411303424"),
        ({"round": 2**70}, "round is 1180591620717411303424"),
        ({"round": True}, "round is True"),
        ({"clients": [-1]}, "clients.0 is -1"),
        ({"measured": [1]}, "measured is"),
        ({"sampler": float("inf")}, "damaged"),
        ({"settings": [1, 2]}, "its settings are not by name"),
        ({"bytes_up": 5}, r"after round 3 there were \d+ bytes of traffic by .* but \d+ by the checkpoint"),
        ({"seconds": 5.5}, r"after round 3 there were \d+\.\d+ seconds by .* but 5.5 by the checkpoint"),
    ],
)
def test_a_crafted_checkpoint_with_a_right_digest_gives_a_sentence(
    folder: Path, changes: dict[str, object], said: str
) -> None:
    sealed(folder, **changes)
    refused(folder, said)


def test_moments_of_an_optimiser_that_is_not_configured_are_refused(folder: Path) -> None:
    newest = found(folder / CHECKPOINTS)[0]
    with safe_open(newest, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = file.metadata()["state"]
    name = next(name for name in tensors if name.startswith("model:"))
    tensors[f"moment:third:{name.removeprefix('model:')}"] = tensors[name].clone()
    newest.write_bytes(
        contents.save(tensors, metadata={"state": text, "digest": contents.digest(text, tensors)})
    )
    refused(folder, "it has a moment 'third', which the configured server optimiser does not keep")


# records


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([0, 2], "line 2 of .* is of round 3: a line is missing or doubled"),
        ([0, 1, 1, 2], "line 3 of .* is of round 2: a line is missing or doubled"),
        ([1, 0, 2], "line 1 of .* is of round 2"),
        ([0], "has 1 rounds, but the checkpoint is of round 3: lines are missing"),
        ([], "has 0 rounds, but the checkpoint is of round 3"),
    ],
)
def test_records_with_lines_missing_or_doubled_are_refused(folder: Path, order: list[int], said: str) -> None:
    path = folder / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[n] for n in order))
    refused(folder, said)


def test_a_last_line_that_was_cut_off_is_done_again_from_the_checkpoint_before(
    folder: Path, tmp_path: Path
) -> None:
    whole = heroes.resume(Path(shutil.copytree(folder, tmp_path / "whole")), MORE)
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-50])
    again = heroes.resume(folder, MORE)
    assert [row.scores for row in again.records] == [row.scores for row in whole.records]
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


@pytest.mark.parametrize(("key", "said"), [("seconds", "seconds fall"), ("traffic", "traffic falls")])
def test_records_in_which_time_or_traffic_falls_are_refused(folder: Path, key: str, said: str) -> None:
    path = folder / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1][key] = 0
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    refused(folder, f"line 2 of .* does not follow the one before: {said}")


# what would be lost


def test_a_run_that_lost_its_checkpoints_keeps_its_records(folder: Path) -> None:
    shutil.rmtree(folder / CHECKPOINTS)
    refused(folder, "has 3 rounds on record, but it has no checkpoint .* start a new run with --overwrite")


def test_a_run_without_checkpoints_keeps_its_records(tmp_path: Path) -> None:
    heroes.run(config(**{"checkpoint.every": 0, "federation.rounds": 1}), out=tmp_path / "run")
    refused(tmp_path / "run", r"has 1 rounds on record, but it has no checkpoint \(checkpoint\.every is 0\)")


def test_more_rounds_than_usual_are_done_again_only_if_told(tmp_path: Path) -> None:
    heroes.run(config(**{"checkpoint.every": 2, "federation.rounds": 6}), out=tmp_path / "run")
    found(tmp_path / "run" / CHECKPOINTS)[0].write_bytes(b"damaged")
    (tmp_path / "run" / CHECKPOINTS / "round-0000004.safetensors").unlink()
    heroes.run(config(**{"checkpoint.every": 2, "federation.rounds": 2}), out=tmp_path / "short")
    shutil.copy(
        tmp_path / "short" / CHECKPOINTS / "round-0000002.safetensors", tmp_path / "run" / CHECKPOINTS
    )
    refused(
        tmp_path / "run", r"newest whole checkpoint is of round 2 .*: 4 rounds .*checkpoint\.every=3 allows"
    )
    again = heroes.resume(tmp_path / "run", {"checkpoint.every": 3})
    assert [row.round for row in again.records] == [1, 2, 3, 4, 5, 6]


def test_a_run_killed_before_its_first_record_begins(folder: Path) -> None:
    whole = (folder / "records.jsonl").read_bytes()
    shutil.rmtree(folder / CHECKPOINTS)
    for name in ("records.jsonl", "model.safetensors", "environment.json"):
        (folder / name).unlink()
    heroes.resume(folder)
    assert (folder / "records.jsonl").read_bytes() == whole


# the model


def test_the_model_says_which_round_it_is_of(folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "pt") as file:
        origin = json.loads(file.metadata()["heroes"])
    assert origin.items() >= {"round": 3, "strategy": "heroes", "width": 2}.items()
    assert origin["version"]


def test_a_finished_run_gets_the_model_that_it_lacks(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.unlink()
    again = heroes.resume(folder)
    assert again.mended == ("model.safetensors was missing",)
    assert path.read_bytes() == whole
    with pytest.raises(ConfigError, match="is finished"):
        heroes.resume(folder)


def test_a_model_of_an_earlier_round_is_replaced(folder: Path, tmp_path: Path) -> None:
    heroes.run(config(**{"federation.rounds": 2}), out=tmp_path / "short")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for spoil, said in (
        ((tmp_path / "short" / "model.safetensors").read_bytes(), "was of round 2"),
        (whole[:-5], "could not be read"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "was another model"),
    ):
        path.write_bytes(spoil)
        assert heroes.resume(folder).mended == (f"model.safetensors {said}",)
        assert path.read_bytes() == whole


def test_a_finished_run_gets_its_environment(folder: Path) -> None:
    (folder / "environment.json").unlink()
    assert heroes.resume(folder).mended == ("environment.json was missing",)
    assert json.loads((folder / "environment.json").read_text())["torch"]


def test_a_checkpoint_of_0_1_0_has_no_settings_and_is_read(folder: Path) -> None:
    sealed(folder, settings={})
    assert len(heroes.resume(folder, MORE).records) == 4


def test_a_run_with_the_old_name_of_the_shared_step_limit_goes_on(folder: Path) -> None:
    text = (folder / "config.toml").read_text()
    assert 'step_limit = "own"' in text
    (folder / "config.toml").write_text(text.replace('step_limit = "own"', 'step_limit = "auto"'))
    sealed(folder, settings=configured.bound(config()) | {"strategy.step_limit": "auto"})
    assert len(heroes.resume(folder, MORE).records) == 4


def test_the_command_says_what_it_mended(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    ended = command_line.heroes("resume", str(folder))
    assert ended.returncode == 0, ended.stderr
    assert "the run was finished, but model.safetensors was missing; it is written now" in ended.stderr


def before_experiments(folder: Path, name: str = "digits") -> None:
    """As it was written when the key was called task."""
    file = folder / "config.toml"
    file.write_text(file.read_text().replace('experiment = "digits"', f'task = "{name}"'))
    then = configured.bound(config())
    sealed(folder, settings={"task": then.pop("experiment"), **then})


def test_a_run_that_says_task_goes_on(folder: Path) -> None:
    before_experiments(folder)
    assert heroes.resume(folder, MORE).config == config(**MORE)
    assert 'experiment = "digits"' in (folder / "config.toml").read_text()


def test_a_checkpoint_that_says_another_task_is_refused(folder: Path) -> None:
    before_experiments(folder, "faces")
    refused(folder, "experiment is 'faces' in config.toml but was 'digits'")
