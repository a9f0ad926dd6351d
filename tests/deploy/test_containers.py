"""The image and the services that `heroes flower keys --docker` writes: Docker builds them and runs them, and
a node in a container trains through the gate in another.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml
from deployed_app import answered, make_app, run_to_the_end, settings
from loopback import NAME, DeploymentError, Federation, Keys, free_port, listens, records, wait_until
from own_docker import ADDRESS, Docker, NoDockerError, can_run, daemon, small_debian
from patience import patience
from test_gate import CLOSED, status

import heroes

pytestmark = pytest.mark.deploy
HERE = Path(__file__).parents[2]
RUN = "/var/lib/heroes/runs/one"
AS_ROOT = "PIP_BREAK_SYSTEM_PACKAGES=1"  # as pip of Debian wants to hear it
NAMES = ("kitchen", "garage")
FOR = ("--python-version", "3.11", "--only-binary", ":all:")  # the image's Python


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, cwd=HERE, timeout=900)


def gathered(folder: Path) -> Path:
    """What the image installs, as an index of packages: this heroes, and all it needs as we have it here."""
    wheels, index, copy = (folder / name for name in ("wheels", "index", "copy"))
    shutil.copytree(HERE / "src", copy / "src")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HERE / name, copy)
    pip("wheel", "--no-deps", "-w", str(wheels), str(copy))
    wanted = f"heroes-fl[node]=={heroes.__version__}"
    pip("download", "-c", "constraints.txt", "-f", str(wheels), "-d", str(wheels), *FOR, wanted)
    for wheel in wheels.iterdir():
        place = index / re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
        place.mkdir(parents=True, exist_ok=True)
        wheel.replace(place / wheel.name)
    return index


@contextmanager
def served(index: Path, port: int) -> Iterator[None]:
    """The index of packages on loopback."""
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", str(index)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port), 30)
        yield
    finally:
        process.kill()
        process.wait()


def without_name(compose: Path) -> Path:
    """The same for the first docker-compose, which takes the project's name by an option only."""
    tree = yaml.safe_load(compose.read_text())
    assert tree.pop("name") == "heroes"
    compose.write_text(yaml.safe_dump(tree))
    return compose


@dataclass(frozen=True)
class Machine:
    """A Docker daemon, and what it cannot fetch: a packed system and an index of packages."""

    docker: Docker
    system: Path
    index: Path

    def build(self, folder: Path) -> None:
        """The image as it was written, from a base of ours; and a gate, which is an nginx."""
        port = free_port()
        self.docker.image("base", self.system, f"ENV PIP_INDEX_URL=http://127.0.0.1:{port}/ {AS_ROOT}")
        self.docker.image("gate", self.system, 'CMD ["nginx", "-g", "daemon off;"]')
        words = ["--network", "host", "--build-arg", "BASE=base", "-t", f"heroes:{heroes.__version__}"]
        with served(self.index, port):
            self.docker("build", *words, str(folder), patience=1200)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    try:
        can_run()
        folder = tmp_path / "fetched"
        folder.mkdir()
        system = small_debian(folder, "python3-minimal", "python3-pip", "nginx-light")
        index = gathered(folder)
        with daemon() as docker:
            yield Machine(docker, system, index)
    except NoDockerError as error:
        pytest.skip(str(error))


def registered(federation: Federation, key: Path) -> bool:
    """Whether the SuperLink took a node's key; the gate listens before it does."""
    try:
        federation.flwr("supernode", "register", str(key), NAME)
    except DeploymentError as error:
        if "SuperLink is unavailable" in str(error):
            return False
        raise
    return True


@pytest.mark.timeout(3600)
def test_a_federation_of_containers_trains_through_the_gate(machine: Machine, tmp_path: Path) -> None:
    docker, keys = machine.docker, tmp_path / "keys"
    names = [word for name in NAMES for word in ("--name", name)]
    words = ["flower", "keys", str(keys), *names, "--host", ADDRESS, "--docker"]
    subprocess.run([sys.executable, "-m", "heroes.cli", *words], check=True, stdout=subprocess.DEVNULL)
    for path in keys.glob("*.key"):
        os.chown(path, 1000, 1000)  # as the services are, unless HEROES_USER says otherwise
    machine.build(keys / "docker")

    compose = partial(docker.compose, without_name(keys / "docker" / "compose.yaml"), HEROES_GATE="gate")
    compose("--profile", "superlink", "up", "-d")
    with Federation(tmp_path / "federation", Keys(keys), port=8001) as federation:
        wait_until(lambda: listens(8000) and listens(8001), 120)
        wait_until(lambda: status(8000, CLOSED[0], keys) == 403, 60)
        for name in NAMES:
            wait_until(partial(registered, federation, keys / f"{name}.pub"), 120)
            compose("--profile", name, "up", "-d", name)
        app = make_app(tmp_path / "app", nodes=2)
        run = run_to_the_end(federation, app, settings(Path(RUN), rounds=2))
        assert run.well(), run.text() + compose("--profile", "superlink", "logs")
    docker("cp", f"heroes_superlink_1:{RUN}", str(tmp_path / "run"))
    assert [answered(record) for record in records(tmp_path / "run")] == [{0, 1}] * 2
    assert docker("exec", "heroes_kitchen_1", "id", "-u").strip() == "1000"
    stopped = time.monotonic()
    compose("--profile", "kitchen", "stop", "kitchen")
    assert time.monotonic() - stopped < patience(25)  # it ends when asked, before it is killed
