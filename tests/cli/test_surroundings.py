"""Odd surroundings of the command line: docstrings stripped, variables of MPI left empty, no home, Ctrl-C
while it is still being imported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
from patience import patience

MODULE = ["-m", "heroes.cli"]
NOBODY = ["unshare", "--user", "--map-user=54321"]  # whom the machine knows no home of
SMALL = ["--rounds", "1", "--set", "training.probes=0", "--quiet"]


@pytest.mark.parametrize(
    "words", [["list"], pytest.param(["run", "digits", *SMALL, "--out", "run"], marks=pytest.mark.slow)]
)
def test_without_assertions_and_docstrings_everything_works(words: list[str], tmp_path: Path) -> None:
    """All that is imported is compiled for it, which takes long with torch."""
    command = [sys.executable, "-OO", *MODULE, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(300), check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"])
def test_an_empty_variable_of_mpi_says_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    done = command_line.heroes("list", "strategies")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²"])
def test_a_rank_that_is_no_number_is_one_sentence(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", text)
    done = command_line.heroes("list", "strategies")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the variable PMI_RANK is {text!r}; mpiexec sets it to a number")
    assert len(done.stderr.splitlines()) == 1


HOMELESS = """
import json, os, sys
sys.path.append(sys.argv[1])
from command_line import heroes
for data, words in json.loads(sys.argv[2]):
    os.environ["HEROES_DATA"] = data
    done = heroes(*words)
    print(json.dumps([done.returncode, done.stderr]))
"""


def homeless(*commands: tuple[str, list[str]]) -> Iterator[tuple[int, str]]:
    """Exit codes and errors of commands of somebody without a home, each with its HEROES_DATA."""
    if subprocess.run([*NOBODY, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here, so everybody has a home")
    surroundings = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_DATA_HOME")}
    command = [*NOBODY, sys.executable, "-c", HOMELESS, str(Path(command_line.__file__).parent)]
    command += [json.dumps(commands)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=patience(300), check=True, env=surroundings
    )
    return (tuple(json.loads(line)) for line in done.stdout.splitlines())


def test_without_a_home_one_sentence_says_what_to_set_or_data_lies_elsewhere(tmp_path: Path) -> None:
    lists, run = ["data", "list"], ["run", "digits", *SMALL, "--out", str(tmp_path / "run")]
    *mistakes, listed, ran = homeless(
        ("", lists),
        ("", ["run", "cifar10"]),
        ("", [*lists, "--dir", "~/x"]),
        (str(tmp_path), lists),
        ("", run),
    )
    assert len(mistakes) == 3
    for code, said in mistakes:
        assert code == 2
        assert said.startswith("error: there is no home directory for '~/")
        assert len(said.splitlines()) == 1
    assert (listed, ran) == ((0, ""), (0, ""))


MOMENTS = ("click", "pydantic", "rich.console", "heroes.settings.config", "numpy", "torch._C")
INTERRUPTS = [
    pytest.param(moment, how, marks=() if place % 2 == (how == signal.SIGINT) else pytest.mark.slow)
    for place, moment in enumerate(MOMENTS)
    for how in (signal.SIGINT, signal.SIGTERM)
]  # each moment and both signals; all pairs among the slow tests


@pytest.mark.parametrize(("moment", "how"), INTERRUPTS)
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


@pytest.mark.parametrize("words", [["list"], ["--help"]])
def test_who_stops_reading_sees_no_error(words: list[str]) -> None:
    assert unread(*words) == (0, "")


def test_everything_is_written_though_nobody_reads(tmp_path: Path) -> None:
    run, compared = tmp_path / "run", tmp_path / "compared"
    small = [word for word in SMALL if word != "--quiet"]
    code, _ = unread("run", "digits", *small, "--report", "--out", str(run), stderr=subprocess.STDOUT)
    assert code == 0
    assert (run / "model.safetensors").exists()
    assert (run / "report.html").exists()
    assert unread("compare", str(run), "--out", str(compared), "--quiet", "--json")[0] == 0
    assert {path.name for path in compared.iterdir()} >= {"comparison.json", "comparison.csv", "report.html"}
