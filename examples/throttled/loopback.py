"""A deployed federation on this machine: a SuperLink and SuperNodes as real processes on loopback, each ended
by its id.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

HOST = "127.0.0.1"
NAME = "loopback"  # what `flwr` calls the SuperLink
MARK = (
    "HEROES_LOOPBACK"  # in the environment of a service and of all that it starts: how they are found again
)
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",  # seconds until a task that has come is begun, at most
}


class DeploymentError(Exception):
    """A service did not do in time what it should have; the text holds the end of its log."""


@dataclass(frozen=True)
class Keys:
    """A folder that `heroes flower keys` made."""

    folder: Path

    def superlink(self) -> list[str]:
        files = (
            ("--ssl-ca-certfile", "ca.crt"),
            ("--ssl-certfile", "server.crt"),
            ("--ssl-keyfile", "server.key"),
        )
        return [
            "--enable-supernode-auth",
            *(word for option, name in files for word in (option, str(self.folder / name))),
        ]

    def supernode(self, number: int) -> list[str]:
        key = str(self.folder / f"node-{number}.key")
        return ["--root-certificates", str(self.folder / "ca.crt"), "--auth-supernode-private-key", key]


@dataclass
class Service:
    """A SuperLink or a SuperNode, with the processes it started."""

    process: subprocess.Popen[bytes]
    log: Path
    mark: str

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def well(self) -> bool:
        """Whether it ended, and well. `flwr run --stream` ends with 0 even if the ServerApp failed; then its
        log has a code.
        """
        return self.process.poll() == 0 and "Exit Code:" not in self.text()

    def kill(self) -> None:
        """SIGKILL to its process group, and to what it started in groups of its own, as when a machine loses
        power.
        """
        others = members(self.mark)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        _send(others, signal.SIGKILL)
        self._wait_for_all()

    def end(self, patience: float = 10.0) -> None:
        """Ask it to end, and then make it."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        self.kill()

    def _wait_for_all(self, patience: float = 10.0) -> None:
        self.process.wait(patience)
        deadline = time.monotonic() + patience
        while left := members(self.mark):
            if time.monotonic() > deadline:
                raise DeploymentError(f"processes {left} do not end")
            _send(left, signal.SIGKILL)  # one may have been started since
            time.sleep(0.05)


@dataclass
class Federation:
    """What runs. `folder` gets the logs, Flower's home and the SuperLink's database."""

    folder: Path
    keys: Keys | None = None
    listen: str = HOST
    # the address at which node `number` finds the SuperLink
    server_for: Callable[[int], str] = lambda number: HOST
    node_config: Callable[[int], str] = lambda number: ""  # what node `number` is told beside its number
    node_command: Sequence[str] = ("flower-supernode",)
    wrap: Callable[[int], Sequence[str]] = lambda number: ()  # words put before the command of node `number`
    port: int = field(default_factory=lambda: free_port())
    node_port: int | None = None  # where nodes find the SuperLink, if not at its own
    services: list[Service] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = self.folder / "flwr"
        self.home.mkdir(parents=True, exist_ok=True)
        access = f'root-certificates = "{self.keys.folder}/ca.crt"' if self.keys else "insecure = true"
        default = f'[superlink]\ndefault = "{NAME}"\n'
        text = f'{default}\n[superlink.{NAME}]\naddress = "{HOST}:{self.port}"\n{access}\n'
        (self.home / "config.toml").write_text(text)

    def __enter__(self) -> Federation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in reversed(self.services):
            service.kill()

    def superlink(self) -> Service:
        """Start the SuperLink, with what its database holds from before, and wait until it listens."""
        access = self.keys.superlink() if self.keys else ["--insecure"]
        where = [
            "--host",
            self.listen,
            "--port",
            str(self.port),
            "--database",
            str(self.folder / "superlink.db"),
        ]
        service = self._start("superlink", ["flower-superlink", *where, *access])
        wait_until(lambda: listens(self.port) or service.process.poll() is not None, 60, service)
        if service.process.poll() is not None:
            raise DeploymentError(f"the SuperLink ended: {service.text()[-2000:]}")
        return service

    def supernode(self, number: int) -> Service:
        """Start node `number`; it may take a moment until it is online, see `online`."""
        access = self.keys.supernode(number) if self.keys else ["--insecure"]
        where = [
            "--superlink",
            f"{self.server_for(number)}:{self.node_port or self.port}",
            "--host",
            HOST,
            "--port",
            str(free_port()),
        ]
        command = [
            *self.node_command,
            *where,
            *access,
            "--node-config",
            f"partition-id={number} {self.node_config(number)}".strip(),
        ]
        return self._start(f"node-{number}", [*self.wrap(number), *command])

    def register(self, number: int) -> None:
        """Tell the SuperLink a node's public key."""
        assert self.keys is not None
        self.flwr("supernode", "register", str(self.keys.folder / f"node-{number}.pub"), NAME)

    def flwr(self, *words: str, patience: float = 60) -> str:
        """What the `flwr` command says; an error if it fails."""
        done = subprocess.run(
            [program("flwr"), *words],
            env=self.environment("flwr"),
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
        if done.returncode:
            raise DeploymentError(
                f"flwr {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done.stdout

    def run(self, app: Path, settings: dict[str, object]) -> Service:
        """Start a run of an app and follow it: the service ends when the run does, its log is what the
        ServerApp says.
        """
        config = " ".join(f"{key}={_toml(value)}" for key, value in settings.items())
        return self._start(
            "run", ["flwr", "run", str(app), NAME, "--stream", *(["--run-config", config] if config else [])]
        )

    def environment(self, mark: str) -> dict[str, str]:
        """No telemetry, no downloads, a home of its own, and our programs first: services start others by
        their bare names.
        """
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        plain = {
            "PATH": path,
            "FLWR_HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            MARK: mark,
        }
        return {**os.environ, **OFFLINE, **plain}

    def _start(self, name: str, command: list[str]) -> Service:
        mark = f"{name}-{uuid.uuid4().hex}"
        log = self.folder / f"{name}-{len(self.services)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    program(word) if word.startswith(("flower-", "flwr")) and "/" not in word else word
                    for word in command
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self.environment(mark),
                cwd=self.folder,
                start_new_session=True,
            )
        self.services.append(Service(process, log, mark))
        return self.services[-1]


def program(name: str) -> str:
    """A program installed beside this Python."""
    return str(Path(sys.executable).parent / name)


def members(mark: str) -> list[int]:
    """The ids of the living processes that carry this mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and wanted in _environ(entry)
    ]


def _environ(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to someone else
        return []


def _send(ids: list[int], how: signal.Signals) -> None:
    for one in ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, how)


def free_port() -> int:
    """A port nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether something accepts connections on that port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def wait_until(ready: Callable[[], object], patience: float, *watched: Service) -> None:
    """Until something is so; an error with the ends of logs if it takes too long."""
    deadline = time.monotonic() + patience
    while not ready():
        if time.monotonic() > deadline:
            ends = "\n".join(f"--- {service.log.name}\n{service.text()[-3000:]}" for service in watched)
            raise DeploymentError(f"not ready after {patience:g} s\n{ends}")
        time.sleep(0.1)


def records(run: Path) -> list[dict[str, Any]]:
    """The rounds that a run folder holds so far, as they were written."""
    path = run / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'
