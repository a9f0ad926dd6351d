"""The command line as scripts and people meet it: its output and its exit codes, also of real processes."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import HEROES, heroes, process
from patience import patience


def test_a_run_prints_progress_a_summary_and_writes_its_folder(tmp_path: Path) -> None:
    done = process("run", "digits", "--rounds", "2", "--set", "training.probes=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "round 2/2" in done.stderr
    assert "accuracy" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"runs/{folder.name}" in done.stdout
    assert len((folder / "records.jsonl").read_text().splitlines()) == 2


def test_json_is_alone_on_standard_output_and_quiet_is_quiet(tmp_path: Path) -> None:
    done = heroes(
        "run", "digits", "--rounds", "1", "--seed", "5", "--out", str(tmp_path / "r"), "--quiet", "--json"
    )
    assert done.returncode == 0
    assert done.stderr == ""
    summary = json.loads(done.stdout)
    assert summary["rounds"] == 1
    shown = heroes("show", str(tmp_path / "r"), "--json")
    assert json.loads(shown.stdout) == summary


def test_a_toml_file_runs(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(
        'experiment = "digits"\n[federation]\nclients = 12\ncohort = 3\nrounds = 1\n[training]\nprobes = 0\n'
    )
    done = heroes("run", str(file), "--out", str(tmp_path / "r"), "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "cohort = 3" in (tmp_path / "r" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "digit"], "did you mean 'digits'?"),
        (["run", "gone.toml"], "no configuration file 'gone.toml'"),
        (["run", "digits", "--strategy", "hero"], "did you mean 'heroes'?"),
        (["run", "digits", "--engine", "mpj"], "did you mean 'mpi'?"),
        (["compare", "digits", "--engine", "mpi"], "does not run under MPI"),
        (["run", "digits", "--rounds", "0"], "federation.rounds is 0"),
        (["run", "digits", "--set", "federation.cohort=50"], "only 40 clients"),
        (
            ["run", "digits", "--set", "federation.clients=5000"],
            "clients is 5000, but there are 1438 examples",
        ),
        (["run", "digits", "--set", "model.rank_ratio=0"], "model.rank_ratio is 0"),
        (["run", "digits", "--set", "model.name=digits_cn"], "did you mean 'digits_cnn'?"),
        (["run", "digits", "--set", "data.name=digit"], "did you mean 'digits'?"),
        (["run", "digits", "--set", "data.partition=gama"], "did you mean 'gamma'?"),
        (["run", "digits", "--set", "fleet.name=papers"], "did you mean 'paper'?"),
        (["run", "digits", "--set", "training.device=cuda"], "this machine has none"),
        (["run", "digits", "--set", "nonsense"], "section.key=value"),
        (["run", "digits", "--out", "/proc/nowhere/run"], "choose a folder you may write to"),
        (
            ["run", "digits", "--set", "tracking.trackers=csv"],
            "tracking.trackers is 'csv': it should be a list, such as [\"csv\"]",
        ),
        (["run", "digits", "--set", "fleet.upload=3"], "it should be two numbers, [low, high]"),
        (
            ["run", "digits", "--set", "federation.target=95"],
            "federation.target is 95 but the main metric is",
        ),
        (["compare", "digits", "--reference", "oort"], "reference is 'oort'"),
        (["compare", "digits", "--targets", "80"], "target accuracy is 80: it should be above 0"),
        (["reproduce", "all", "accuracy"], "'all' stands for itself"),
        (["show", "."], "is not a run folder"),
        (["list", "experiment"], "did you mean 'experiments'?"),
        (["fly"], "No such command"),
        (["run"], "Missing argument"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    told_once(heroes(*arguments, cwd=tmp_path), said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "digit"], "did you mean 'digits'?"),
        pytest.param(
            ["run", "digits", "--engine", "mpi"],
            "mpiexec -n 5 heroes run digits --engine mpi",
            marks=pytest.mark.slow,
        ),
        (["fly"], "No such command"),
        (["run", "digits", "--out", ""], "there is nothing after '--out'; perhaps a variable of the shell"),
        (["run", "digits", "--out="], "there is nothing after '--out'"),
    ],
)
def test_a_process_says_it_too(arguments: list[str], said: str, tmp_path: Path) -> None:
    told_once(process(*arguments, cwd=tmp_path), said)


def told_once(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_second_run_into_the_same_folder_is_refused_unless_overwritten(tmp_path: Path) -> None:
    call = [
        "run",
        "digits",
        "--rounds",
        "1",
        "--set",
        "training.probes=0",
        "--out",
        str(tmp_path / "r"),
        "--quiet",
    ]
    assert heroes(*call).returncode == 0
    refused = heroes(*call)
    assert refused.returncode == 2
    assert "already holds a run" in refused.stderr
    assert heroes(*call, "--overwrite").returncode == 0


def test_version_and_help_and_lists() -> None:
    assert heroes("--version").stdout.startswith("heroes 0.")
    assert "run" in heroes("--help").stdout
    assert "EXPERIMENT" in heroes("run", "--help").stdout
    listed = heroes("list").stdout
    for name in ("digits", "heroes", "digits_cnn", "gamma", "paper", "in_process"):
        assert name in listed
    assert "training.momentum" in heroes("list", "config").stdout


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupted_run_exits_130_and_keeps_the_rounds_done(tmp_path: Path, how: signal.Signals) -> None:
    folder = tmp_path / "r"
    running = subprocess.Popen(
        [*HEROES, "run", "digits", "--rounds", "500", "--out", str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    records = folder / "records.jsonl"
    deadline = time.monotonic() + patience(240)
    while not (records.exists() and records.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline, "no round was written"
        time.sleep(0.1)
    os.kill(running.pid, how)
    _, said = running.communicate(timeout=patience(240))
    assert running.returncode == 130
    assert "Traceback" not in said
    assert records.read_text().endswith("\n")
    assert (folder / "model.safetensors").exists()
