"""MPI jobs on two hosts with addresses of their own: the same bits, also if the link between them is cut."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import records, wait_until
from mpi_launch import SETTINGS, SMALL
from patience import patience
from two_hosts import MPICH, Hosts, Job, NoNamespacesError

import heroes

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900), pytest.mark.xdist_group("deploy")]
ROUNDS = 25
HEROES = [sys.executable, "-m", "heroes.cli"]
SILENCE = patience(8)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    try:
        with Hosts(tmp_path) as made:
            yield made
    except NoNamespacesError as error:
        pytest.skip(f"no network namespaces can be made here, as root can: {error}")


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> str:
    if request.param == "mpich" and not MPICH.exists():
        pytest.skip(f"{MPICH.name} is missing: make test-deploy installs MPICH there")
    return str(request.param)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as it is when nothing happens, one client after the other."""
    out = tmp_path_factory.mktemp("undisturbed")
    config = heroes.recipes.digits(rounds=ROUNDS).changed({**SMALL, "engine.name": "in_process"})
    heroes.run(config, out=out, overwrite=True)
    return out


def begun(hosts: Hosts, mpi: str, out: Path, wait: float) -> Job:
    """A run on both hosts of which a round is done."""
    command = [*HEROES, "run", "digits", "--engine", "mpi", *SETTINGS, "--rounds", str(ROUNDS)]
    job = hosts.start(mpi, *command, "--set", f"engine.wait_seconds={wait}", "--out", str(out))
    wait_until(lambda: records(out) or job.process.poll() is not None, patience(200))
    assert job.process.poll() is None, job.text()
    return job


def same(out: Path, expected: Path) -> bool:
    return all(
        (out / file).read_bytes() == (expected / file).read_bytes()
        for file in ("records.jsonl", "model.safetensors")
    )


def trains(hosts: Hosts, name: str) -> bool:
    """Whether a rank still runs on this host."""
    commands = []
    for process in hosts.processes(name):
        try:
            commands.append(Path(f"/proc/{process}/cmdline").read_bytes())
        except OSError:
            continue
    return any(command.startswith(sys.executable.encode()) for command in commands)


def test_a_cut_link_ends_the_job_with_a_sentence_and_resume_goes_on(
    hosts: Hosts, mpi: str, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    job = begun(hosts, mpi, out, SILENCE)
    hosts.cut()
    wait_until(lambda: job.process.poll() is not None, patience(200))
    assert job.process.returncode not in (0, None)
    (sentence,) = [line for line in job.text().splitlines() if line.startswith("error: ")]
    lost = rf"error: rank [12]( on 'two')? has said nothing for {SILENCE:g} seconds \(engine.wait_seconds\); "
    assert re.match(lost, sentence)
    assert sentence.endswith(f"; to go on: heroes resume {out}")
    assert "Traceback" not in job.text()
    wait_until(lambda: not trains(hosts, "one") and not trains(hosts, "two"), patience(60))
    assert 1 <= len(records(out)) < ROUNDS

    hosts.mend()
    more = hosts.start(mpi, *HEROES, "resume", str(out), "--engine", "mpi", "--quiet")
    wait_until(lambda: more.process.poll() is not None, patience(200))
    assert more.process.returncode == 0, more.text()
    assert same(out, undisturbed)
    # Open MPI's daemon on the host that was cut off hears of the end
    wait_until(lambda: not hosts.processes("one") and not hosts.processes("two"), patience(120))


def test_a_link_that_is_mended_in_time_costs_nothing(
    hosts: Hosts, mpi: str, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    job = begun(hosts, mpi, out, 300)
    hosts.cut()
    time.sleep(4)
    hosts.mend()
    wait_until(lambda: job.process.poll() is not None, patience(200))
    assert job.process.returncode == 0, job.text()
    assert same(out, undisturbed)
