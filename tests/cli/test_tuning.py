"""`heroes tune`, and grids and tuned files in `heroes compare`, on real runs."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import HEROES, heroes
from patience import patience

from heroes.settings import tuned_files

pytestmark = pytest.mark.timeout(400)
SMALL = ["federation.clients=6", "federation.cohort=2", "training.probes=0", "model.max_width=2"]
WORLD = [word for setting in SMALL for word in ("--set", setting)]
GRID = ["--strategies", "fedavg", "--grid", "training.learning_rate=0.05,0.1", "--budget", "60", *WORLD]
ONE = ["--jobs", "1"]  # process to start
RATE = "training.learning_rate"


def results(folder: Path) -> dict[tuple[float, int], object]:
    """By rate and seed: everything that does not depend on the machine."""
    rows = map(json.loads, (folder / "digits.jsonl").read_text().splitlines())
    return {(row["settings"][RATE], row["seed"]): row | {"wall_seconds": 0} for row in rows}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rates, two seeds, two at once."""
    folder = tmp_path_factory.mktemp("tune") / "out"
    done = heroes("tune", "digits", *GRID, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert "Settings for digits" in done.stdout
    assert "4 of 4" in done.stderr
    assert str(folder / "digits.toml") in done.stderr
    return folder


def test_a_search_leaves_results_runs_a_table_and_a_file_of_settings(tuned: Path) -> None:
    found = results(tuned)
    assert set(found) == {(rate, seed) for rate in (0.05, 0.1) for seed in (100, 101)}
    names = {folder.name for folder in (tuned / "trials").iterdir()}
    assert "fedavg-learning_rate-0.05-100" in names
    assert len(names) == 4
    config = tuned_files.toml_text.read(tuned / "trials" / "fedavg-learning_rate-0.05-100" / "config.toml")
    assert (config["data"]["validation"], config["federation"]["time_budget"]) == (0.1, 60.0)
    best = tuned_files.read(tuned / "digits.toml")["fedavg"]
    assert best[RATE] in (0.05, 0.1)
    command = "heroes tune digits --strategies fedavg --grid training.learning_rate=0.05,0.1 --budget 60"
    assert f"# {command}" in (tuned / "digits.toml").read_text()
    assert command in (tuned / "digits.md").read_text()
    assert "| fedavg | learning_rate=0.05 |" in (tuned / "digits.md").read_text()


def test_what_is_on_record_is_not_run_again_without_the_run_folders(tuned: Path, tmp_path: Path) -> None:
    shutil.copy(tuned / "digits.jsonl", tmp_path / "digits.jsonl")
    again = heroes("tune", "digits", *GRID, "--out", str(tmp_path), "--json", *ONE)
    assert again.returncode == 0, again.stderr
    assert not (tmp_path / "trials").exists()
    scores = {key: row["score"] for key, row in results(tuned).items()}  # type: ignore[index]
    best = json.loads(again.stdout)["fedavg"]
    assert best["score"] == max((scores[rate, 100] + scores[rate, 101]) / 2 for rate in (0.05, 0.1))
    other = heroes("tune", "digits", *GRID[:-2], "--set", "model.max_width=3", "--out", str(tmp_path))
    assert other.returncode == 2
    assert "model.max_width = 2, but now it is model.max_width = 3" in other.stderr


def test_run_folders_without_a_result_are_read_and_not_run_again(tuned: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(tuned, folder)
    (folder / "digits.jsonl").unlink()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/records.jsonl")}
    assert heroes("tune", "digits", *GRID, "--out", str(folder), *ONE).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert results(folder) == results(tuned)


@pytest.mark.slow
@pytest.mark.timeout(900)  # more than all that it waits for
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_at_any_moment_it_goes_on_to_the_same_results(tuned: Path, tmp_path: Path, how: int) -> None:
    command = [*HEROES, "tune", "digits", *GRID, "--out", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + patience(300)
    while not list(tmp_path.glob("trials/*/checkpoints/*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, how)
    _, said = process.communicate(timeout=patience(120))
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "to go on: heroes tune digits --strategies fedavg" in said
        assert "Traceback" not in said
    begun = [path.parent.parent for path in tmp_path.glob("trials/*/checkpoints/*")]
    whole = [path for path in tmp_path.glob("trials/*") if "stopped" in _last(path)]
    assert begun
    assert len(whole) < 4, "it was stopped too late to tell"
    done = heroes("tune", "digits", *GRID, "--out", str(tmp_path), *ONE)
    assert done.returncode == 0, done.stderr
    assert results(tmp_path) == results(tuned)
    for path in tuned.glob("trials/*/records.jsonl"):
        assert path.read_bytes() == (tmp_path / "trials" / path.parent.name / path.name).read_bytes()


def _last(folder: Path) -> str:
    """What the last record says of the end, if there is one."""
    records = folder / "records.jsonl"
    rows = records.read_text().splitlines() if records.exists() else []
    return "stopped" if rows and json.loads(rows[-1]).get("stopped") else ""


@pytest.mark.slow
def test_trials_that_cannot_be_trained_count_as_the_worst(tmp_path: Path) -> None:
    wild = ["--strategies", "fedavg", "--grid", "training.learning_rate=0.1,1e30", "--budget", "60", *WORLD]
    done = heroes(
        "tune",
        "digits",
        *wild,
        "--seeds",
        "100",
        "--set",
        "training.clip=none",
        "--out",
        str(tmp_path),
        "--json",
        *ONE,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fedavg"]["settings"] == {RATE: 0.1}
    assert results(tmp_path)[1e30, 100]["failed"]  # type: ignore[index]


def test_the_stages_on_a_tiny_budget(tmp_path: Path) -> None:
    done = heroes(
        *("tune", "digits", "--strategies", "flanc", "--budget", "4", "--seeds", "100", *WORLD, *ONE),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    rows = [
        json.loads(line) for line in (tmp_path / "runs/tune-digits/digits.jsonl").read_text().splitlines()
    ]
    assert {row["settings"]["strategy.tau"] for row in rows} >= {10, 20, 50}
    assert {row["settings"][RATE] for row in rows} >= {0.03, 0.1, 0.2}
    assert all(len(line) <= 120 for line in done.stdout.splitlines())


def test_compare_takes_a_grid_and_a_tuned_file(tuned: Path, tmp_path: Path) -> None:
    quick = ["--strategies", "fedavg", "--rounds", "1", "--set", "engine.name=in_process", *WORLD]
    grid = ["--grid", "strategy.tau=2,3", "--grid", "training.momentum=0.5"]
    done = heroes(
        "compare", "digits", *quick, *grid, "--settings", str(tuned / "digits.toml"), "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "fedavg (tau=2)" in done.stdout
    assert "fedavg (tau=3)" in done.stdout
    best = tuned_files.read(tuned / "digits.toml")["fedavg"][RATE]
    for tau in (2, 3):
        config = tuned_files.toml_text.read(tmp_path / f"fedavg-tau-{tau}-momentum-0.5-0" / "config.toml")
        assert config["strategy"]["tau"] == tau
        assert config["training"]["momentum"] == 0.5
        assert config["training"]["learning_rate"] == best


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune", "digit"], "did you mean 'digits'?"),
        (["tune", "digits", "--strategies", "fedav"], "did you mean 'fedavg'?"),
        (["tune", "digits", "--grid", "training.learning_rate"], "write a key and its values"),
        (
            ["tune", "digits", "--grid", "training.learning_rates=0.1"],
            "unknown key 'training.learning_rates'",
        ),
        (["tune", "digits", "--grid", "training.learning_rate=0.1,fast"], "training.learning_rate is 'fast'"),
        (["tune", "digits", "--budget", "-3"], "federation.time_budget is -3"),
        (["tune", "digits", "--seeds", "1,x"], "--seeds has 'x'"),
        (["tune", "digits", "--set", "data.validation=0"], "data.validation is 0"),
        (["tune", "digits", "--set", "engine.name=mpi"], "does not run under MPI"),
        (["tune", "digits", "--set", "nonsense=1"], "unknown key 'nonsense'"),
        pytest.param(
            ["tune", "cifar10", "--set", "data.directory=nowhere", *ONE],
            "heroes data get cifar10",
            marks=pytest.mark.slow,
        ),
        (["tune", "digits", "--out", "/proc/nowhere"], "'/proc/nowhere"),
        (["compare", "digits", "--grid", "strategy.tau=1,2"], "heroes: unknown key 'strategy.tau'"),
        (["compare", "digits", "--settings", "nowhere.toml"], "there is no file of settings 'nowhere.toml'"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = heroes(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "has 'x' outside of a section"),
        ("[fedav]", "did you mean 'fedavg'?"),
        ("[fedavg", "as TOML"),
        ('[fedavg]\n"training.rate" = 1', "[fedavg] in 's.toml': unknown key 'training.rate'"),
        ('[fedavg]\n"training.momentum" = "x"', "[fedavg] in 's.toml': training.momentum is 'x'"),
    ],
)
def test_a_wrong_file_of_settings_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(text)
    done = heroes("compare", "digits", "--strategies", "fedavg", "--settings", "s.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()
