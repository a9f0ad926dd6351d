"""Odd surroundings of the command line: docstrings stripped, variables of MPI left empty, no home, Ctrl-C
while it is still being imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

MODULE = ["-m", "heroes.cli"]
NOBODY = ["unshare", "--user", "--map-user=54321"]  # whom the machine knows no home of
SMALL = ["--rounds", "1", "--set", "training.probes=0", "--quiet"]


def heroes(
    *arguments: str, before: tuple[str, ...] = (), options: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command line in a process; what is in its environment besides, and no HOME where that is empty."""
    surroundings = {**os.environ, **variables}
    if not surroundings.get("HOME"):
        surroundings.pop("HOME", None)
    command = [*before, sys.executable, *options, *MODULE, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patience(300), check=False, env=surroundings
    )


def test_without_assertions_and_docstrings_everything_works(tmp_path: Path) -> None:
    for words in (["list"], ["run", "digits", *SMALL, "--out", str(tmp_path / "run")]):
        done = heroes(*words, options=("-OO",))
        assert (done.returncode, done.stderr) == (0, ""), words


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"])
def test_an_empty_variable_of_mpi_says_nothing(name: str) -> None:
    done = heroes("list", "strategies", **{name: ""})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²"])
def test_a_rank_that_is_no_number_is_one_sentence(text: str) -> None:
    done = heroes("list", "strategies", PMI_RANK=text)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the variable PMI_RANK is {text!r}; mpiexec sets it to a number")
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def nobody() -> tuple[str, ...]:
    """What a command is put behind to be run by somebody without a home."""
    if subprocess.run([*NOBODY, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here, so everybody has a home")
    return tuple(NOBODY)


@pytest.mark.parametrize("words", [["data", "list"], ["run", "cifar10"], ["data", "list", "--dir", "~/x"]])
def test_without_a_home_one_sentence_says_what_to_set(nobody: tuple[str, ...], words: list[str]) -> None:
    done = heroes(*words, before=nobody, HOME="", XDG_DATA_HOME="", HEROES_DATA="")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no home directory for '~/")
    assert len(done.stderr.splitlines()) == 1


def test_without_a_home_data_can_lie_elsewhere_and_a_run_needs_none(
    nobody: tuple[str, ...], tmp_path: Path
) -> None:
    listed = heroes("data", "list", before=nobody, HOME="", HEROES_DATA=str(tmp_path))
    assert (listed.returncode, listed.stderr) == (0, "")
    run = heroes("run", "digits", *SMALL, "--out", str(tmp_path / "run"), before=nobody, HOME="")
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "moment", ["click", "pydantic", "rich.console", "heroes.settings.config", "numpy", "torch._C"]
)
def test_whoever_is_interrupted_while_it_is_imported_leaves_in_one_line(
    tmp_path: Path, moment: str, how: signal.Signals
) -> None:
    command = [sys.executable, "-X", "importtime", *MODULE, "run", "digits", *SMALL]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr:
        for line in process.stderr:  # a line for every module, as soon as it is imported
            if line.rpartition("|")[2].strip() == moment:
                break
        process.send_signal(how)
        said = [line for line in process.stderr.read().splitlines() if not line.startswith("import time:")]
    assert (process.returncode, said) == (130, ["interrupted"])
    assert not (tmp_path / "run").exists()


def test_who_was_told_not_to_heed_ctrl_c_does_not(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-X", "importtime", *MODULE, "list", "strategies"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    with process, process.stderr:
        next(line for line in process.stderr if line.rpartition("|")[2].strip() == "click")
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    assert process.returncode == 0


def unread(*arguments: str, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    """The exit code and the errors of a command whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    both = writer if stderr == subprocess.STDOUT else stderr
    command = [sys.executable, *MODULE, *arguments]
    try:
        done = subprocess.run(
            command, stdout=writer, stderr=both, text=True, timeout=patience(300), check=False
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("words", [["list"], ["--help"], ["--version"], ["list", "config"]])
def test_who_stops_reading_sees_no_error(words: list[str]) -> None:
    assert unread(*words) == (0, "")


def test_everything_is_written_though_nobody_reads(tmp_path: Path) -> None:
    run, compared = tmp_path / "run", tmp_path / "compared"
    small = [word for word in SMALL if word != "--quiet"]
    code, _ = unread("run", "digits", *small, "--report", "--out", str(run), stderr=subprocess.STDOUT)
    assert code == 0
    assert (run / "model.safetensors").exists()
    assert (run / "report.html").exists()
    for output in ((), ("--json",)):
        assert unread("compare", str(run), "--out", str(compared), "--quiet", *output)[0] == 0
        assert {path.name for path in compared.iterdir()} >= {
            "comparison.json",
            "comparison.csv",
            "report.html",
        }
        for path in compared.iterdir():
            path.unlink()
