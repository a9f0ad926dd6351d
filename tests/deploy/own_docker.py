"""A Docker daemon of the test's own, in a network of its own: with it all that it made ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loopback import wait_until

NEEDED = ("dockerd", "docker", "docker-compose", "debootstrap", "ip")
ADDRESS = "172.30.77.1"  # of the machine, as its containers see it
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class NoDockerError(Exception):
    """This machine does not let us run containers."""


@dataclass(frozen=True)
class Docker:
    """How to reach a daemon, whose socket lies in `folder`."""

    folder: Path

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def __call__(self, *words: str, patience: float = 120, **given: str) -> str:
        """What a docker command says; an error with its last words if it fails."""
        return self._said(["docker", *words], patience, given)

    def compose(self, file: Path, *words: str, **given: str) -> str:
        """The same for docker-compose."""
        return self._said(["docker-compose", "-p", "heroes", "-f", str(file), *words], 120, given)

    def image(self, name: str, system: Path, *changes: str) -> None:
        """Make an image of a packed system; changes are lines of a Dockerfile."""
        self("import", *(word for line in changes for word in ("--change", line)), str(system), name)

    def _said(self, command: list[str], patience: float, given: dict[str, str]) -> str:
        reach = {"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}  # the plain builder is always there
        return _checked(command, patience, os.environ | reach | given)


def small_debian(folder: Path, *packages: str) -> Path:
    """A Debian with Python 3.11 and little else but these packages, packed."""
    root, packed = folder / "root", folder / "root.tar"
    _checked(
        ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", "bookworm", str(root)], 900
    )
    _checked(["tar", "-C", str(root), "-cf", str(packed), "."], 300)
    shutil.rmtree(root)
    return packed


def _checked(command: list[str], patience: float, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patience, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def can_run() -> None:
    """An error if this machine lacks what is needed."""
    if os.geteuid() != 0:
        raise NoDockerError("only root may start a Docker daemon")
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        raise NoDockerError(f"there is no {' and no '.join(missing)}; make containers installs them")


@contextmanager
def daemon() -> Iterator[Docker]:
    """Start one in a network without a way out, which this thread and what it starts are in until the end."""
    with _own_network(), tempfile.TemporaryDirectory(prefix="docker-") as short:  # a socket's path is short
        docker, log = Docker(Path(short)), Path(short) / "log"
        places = [f"--data-root={short}/data", f"--exec-root={short}/exec", f"--pidfile={short}/pid"]
        command = ["dockerd", "-H", docker.host, "--bip", f"{ADDRESS}/24", *places]
        with log.open("w") as out:
            process = subprocess.Popen(
                ["unshare", "--mount", *command], stdout=out, stderr=out, start_new_session=True
            )
        try:
            wait_until(lambda: (Path(short) / "docker.sock").exists() or process.poll() is not None, 60)
            if process.poll() is not None:
                raise NoDockerError(f"dockerd ended: {log.read_text()[-500:]}")
            docker("info")
            yield docker
        finally:  # its containers end with it
            process.terminate()
            process.wait(60)


@contextmanager
def _own_network() -> Iterator[None]:
    """This thread is in a new network namespace, with loopback alone, and afterwards in its own again."""
    system = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if system.unshare(_NEW_NETWORK):
            raise NoDockerError(f"no network of its own: {os.strerror(ctypes.get_errno())}")
        try:
            _checked(["ip", "link", "set", "lo", "up"], 10)
            yield
        finally:
            assert system.setns(before, _NEW_NETWORK) == 0
    finally:
        os.close(before)
