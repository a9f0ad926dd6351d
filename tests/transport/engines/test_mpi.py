"""Ranks of real MPI jobs: the same bits as one client after the other, one voice, and nothing left behind
however it ends.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from command_line import HEROES
from loopback import records
from mpi_launch import QUIET, SETTINGS, SMALL
from patience import patience
from representatives import representatives
from safetensors.torch import load_file

import heroes
from heroes.errors import ConfigError
from heroes.transport.engines.mpi.world import world

MPIEXEC = [str(Path(sys.executable).with_name("mpiexec")), "--oversubscribe"]
RUN = ["run", "digits", "--engine", "mpi", *SETTINGS]


@contextmanager
def started(*command: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """An MPI job in a session of its own; whatever is left of it is ended by its id."""
    process = subprocess.Popen(
        [*MPIEXEC, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **QUIET, **env},
    )
    try:
        yield process
    finally:
        for pid in session_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def finished(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    with started(*command, **env) as process:
        out, err = process.communicate(timeout=patience(240))
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def session_of(leader: int) -> dict[int, str]:
    """The living processes of a session and their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if int(session) == leader and state != "Z":
                found[int(entry.name)] = command
    return found


def wait_until(true: Callable[[], object], seconds: float = 200.0) -> None:
    deadline = time.monotonic() + patience(seconds)
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# the engine


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 of three found, case by case; see `mpi_job`."""
    out = tmp_path_factory.mktemp("mpi") / "found.json"
    done = finished("-n", "3", sys.executable, str(Path(__file__).with_name("mpi_job.py")), str(out))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return dict(json.loads(out.read_text()))


@pytest.mark.parametrize("name", representatives())
def test_every_strategy_gives_the_same_bits(found, name):
    assert found[name] is True


@pytest.mark.parametrize("name", ["eight bits", "feedback"])
def test_exchange_in_fewer_bits_gives_the_same_bits_too(found, name):
    assert found[name] is True


@pytest.mark.parametrize(
    ("name", "reason"), [("failing", "ValueError: no such thing"), ("late", "took longer than 1 seconds")]
)
def test_a_client_is_lost_with_a_reason_the_others_count_and_the_run_goes_on(found, name, reason):
    assert found[name] == {"same": True, "missing": [[[5, reason]]] * 2}


def test_an_abandoned_round_does_not_disturb_the_next(found):
    assert found["abandoned"] is True


def test_ranks_leave_in_the_midst_of_a_task(found):
    assert found["stuck"] == ["Lost", "Lost"]


def test_the_longest_goes_first(found):
    assert found["longest first"] == {"begun": [1, 5, 3, 2, 0, 4], "answered": [0, 1, 2, 3, 4, 5]}


def test_what_tasks_have_in_common_travels_once_to_each_rank(found):
    sizes = found["sizes"]
    assert sizes.keys() <= {"1", "2"}  # on a busy machine one rank may be ready after the other has done all
    assert sum(map(len, sizes.values())) == 8
    assert all(other < first / 2 for first, *others in sizes.values() for other in others)


def test_scores_are_the_same_bits_beside_a_round_or_not(found):
    assert found["scores"] == [True] * 4


def test_in_a_script_only_rank_0_goes_on_and_its_errors_do_not_hold_the_others(found):
    assert found["from python"] == {"refused": True, "failed": True, "same": True}


def test_without_mpi4py_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    world.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'heroes-fl\[mpi\]'"):
        heroes.run(heroes.recipes.digits(rounds=1).changed({"engine.name": "mpi"}))


# the command line


def test_a_run_speaks_with_one_voice_and_every_rank_gets_its_model(tmp_path):
    command = [*HEROES, *RUN, "--rounds", "2", "--out", str(tmp_path / "run")]
    command += ["--set", f"engine.model_out={tmp_path}/rank-{{rank}}.safetensors"]
    command += ["--set", "model.norm=batch"]  # of which every rank gets the statistics
    narrow = ["-n", "1", "-x", "HEROES_WIDTH=2", *command]
    done = finished("-n", "2", *command, ":", *narrow)
    assert done.returncode == 0, done.stderr
    lines = [line.split("  ")[0] for line in done.stderr.splitlines() if not line.startswith("gamma uses ")]
    assert lines == [f"digits/heroes round {n}/2" for n in (1, 2)]
    assert done.stdout.count("run folder") == 1
    changes = {**SMALL, "engine.name": "in_process", "model.norm": "batch"}
    here = heroes.run(heroes.recipes.digits(rounds=2).changed(changes), out=tmp_path / "here")
    for file in ("records.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    for rank, width in enumerate([4, 4, 2]):
        kept, expected = load_file(tmp_path / f"rank-{rank}.safetensors"), here.model(width).state_dict()
        assert kept.keys() == expected.keys()
        assert all(torch.equal(kept[name], value) for name, value in expected.items())
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            [*RUN, "--set", "model.name=digits_cn"],
            "error: model.name is 'digits_cn': did you mean 'digits_cnn'?",
            marks=pytest.mark.slow,
        ),
        pytest.param([*RUN, "--rounds", "0"], "error: federation.rounds is 0", marks=pytest.mark.slow),
        (
            ["run", "digits"],
            "error: 2 processes were started together but engine.name is 'processes'; say --engine mpi",
        ),
        pytest.param(
            ["compare", "digits"], "error: heroes compare does not run under MPI", marks=pytest.mark.slow
        ),
    ],
)
def test_a_mistake_is_said_once(arguments, said):
    done = finished("-n", "2", *HEROES, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert done.stderr.count("error") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_rank_that_cannot_start_is_named(tmp_path):
    command = [*HEROES, *RUN, "--out", str(tmp_path / "run"), "--set", f"engine.model_out={tmp_path}/model"]
    done = finished("-n", "1", *command, ":", "-n", "1", "-x", "HEROES_WIDTH=9", *command)
    assert done.returncode == 1
    said = "error: rank 1 could not start: HEROES_WIDTH is '9'. Choices: 1, 2, 3, 4"
    assert [line for line in done.stderr.splitlines() if "error" in line] == [said]


@contextmanager
def running(
    folder: Path, ranks: int = 2, settings: Sequence[str] = (), rounds: int = 5000
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A long run once its first round is done, and its ranks in their order."""
    command = [*HEROES, *RUN, "--rounds", str(rounds), "--out", str(folder)]
    command += [word for setting in settings for word in ("--set", setting)]
    with started("-n", str(ranks), *command) as process:
        wait_until(lambda: records(folder))
        yield (
            process,
            sorted(
                pid for pid, command in session_of(process.pid).items() if command.startswith(sys.executable)
            ),
        )


def test_ctrl_c_ends_everything_and_the_run_can_go_on(tmp_path):
    with running(tmp_path / "run", 3) as (process, ranks):
        assert len(ranks) == 3
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=patience(240))
        assert process.returncode != 0
        assert "Traceback" not in said
        wait_until(lambda: session_of(process.pid) == {})
    done = len((tmp_path / "run" / "records.jsonl").read_text().splitlines())
    more = [
        "resume",
        str(tmp_path / "run"),
        "--engine",
        "in_process",
        "--rounds",
        str(done + 2),
        "--json",
        "--quiet",
    ]
    resumed = command_line.heroes(*more)  # by ranks as well: see below
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert json.loads(resumed.stdout)["rounds"] == done + 2


def test_when_rank_0_is_interrupted_the_others_leave_well(tmp_path):
    with running(tmp_path / "run") as (process, ranks):
        os.kill(ranks[0], signal.SIGTERM)
        _, said = process.communicate(timeout=patience(240))
        assert process.returncode == 130
        assert "interrupted; to go on: heroes resume" in said
        assert "Traceback" not in said
        wait_until(lambda: session_of(process.pid) == {})
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_ranks_end_when_mpiexec_is_killed(tmp_path):
    with running(tmp_path / "run") as (process, _):
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        wait_until(lambda: session_of(process.pid) == {})
    assert list((tmp_path / "run" / "checkpoints").iterdir())


# ranks of which nothing is heard


@pytest.mark.slow
def test_a_rank_of_which_nothing_is_heard_ends_the_run_which_goes_on_to_the_same_bits(tmp_path):
    silence = patience(8)
    with running(tmp_path / "run", 2, [f"engine.wait_seconds={silence}"], 25) as (process, ranks):
        os.kill(ranks[1], signal.SIGSTOP)
        _, said = process.communicate(timeout=patience(240))
        assert process.returncode == 75, said
        wait_until(lambda: session_of(process.pid) == {})
    (sentence,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert sentence.startswith(
        f"error: rank 1 on '{platform.node()}' has said nothing for {silence:g} seconds"
    )
    assert sentence.endswith(f"; to go on: heroes resume {tmp_path / 'run'}")
    assert "Traceback" not in said
    resumed = finished("-n", "2", *HEROES, "resume", str(tmp_path / "run"), "--quiet")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    whole = heroes.recipes.digits(rounds=25).changed({**SMALL, "engine.name": "in_process"})
    heroes.run(whole, out=tmp_path / "here")
    for file in ("records.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()


def test_the_others_leave_when_nothing_is_heard_of_rank_0(tmp_path):
    with running(tmp_path / "run", 2, [f"engine.wait_seconds={patience(8)}"]) as (process, ranks):
        os.kill(ranks[0], signal.SIGSTOP)
        _, said = process.communicate(timeout=patience(240))
        assert process.returncode == 75, said
        assert "Traceback" not in said
        wait_until(lambda: session_of(process.pid) == {})


@pytest.mark.slow
def test_a_rank_that_is_silent_for_a_while_costs_its_client_nothing(tmp_path):
    limit = patience(5)
    with running(tmp_path / "run", 2, [f"engine.task_seconds={limit}"]) as (process, ranks):
        os.kill(ranks[1], signal.SIGSTOP)
        before = len(records(tmp_path / "run"))
        time.sleep(2 * limit)
        os.kill(ranks[1], signal.SIGCONT)
        wait_until(lambda: len(records(tmp_path / "run")) >= before + 4)
        assert [record["missing"] for record in records(tmp_path / "run") if record["missing"]] == []
        assert process.poll() is None
