"""Two hosts with names and addresses of their own, as network namespaces here, and MPI jobs on both."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from mpi_launch import QUIET

NAMES = ("one", "two")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
AGENT = """#!/bin/sh
# In place of ssh: OPTIONS ADDRESS COMMAND... runs the command on that host, under the host's name.
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in {cases} *) echo "no host has the address $1" >&2; exit 1 ;; esac
shift
exec ip netns exec "$space" unshare --uts sh -c 'hostname "$0" && eval "$*"' "$name" "$@"
"""
MPICH = Path(__file__).parents[2] / ".venv-mpich"


class NoNamespacesError(Exception):
    """This machine does not let us make hosts."""


@dataclass
class Job:
    """An MPI job that was started on host one; what it says goes to a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text()


@dataclass
class Hosts:
    """Hosts one and two and a cable between them; at the end all their processes end by their ids."""

    folder: Path
    jobs: list[Job] = field(default_factory=list)

    def __enter__(self) -> Hosts:
        if shutil.which("ip") is None:
            raise NoNamespacesError("there is no ip command; make hosts installs it")
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.__exit__(None, None, None)
            raise NoNamespacesError(error.stderr.strip()) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in NAMES:
            while there := self.processes(name):
                for process in there:
                    os.kill(process, signal.SIGKILL)
                for job in self.jobs:
                    job.process.wait(10)
            subprocess.run(["ip", "netns", "del", self.space(name)], capture_output=True, check=False)

    def _make(self) -> None:
        for name in NAMES:
            _ip("netns", "add", self.space(name))
        one, two = map(self.space, NAMES)
        _ip("link", "add", "cable", "netns", one, "type", "veth", "peer", "name", "cable", "netns", two)
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            _ip("-n", self.space(name), "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", self.space(name), "link", "set", device, "up")
        cases = [f"{a}) name={n} space={self.space(n)} ;;" for n, a in zip(NAMES, ADDRESSES, strict=True)]
        self.agent.write_text(AGENT.format(cases=" ".join(cases)))
        self.agent.chmod(0o755)

    @property
    def agent(self) -> Path:
        return self.folder / "agent"

    @staticmethod
    def space(name: str) -> str:
        return f"heroes-{os.getpid()}-{name}"

    def processes(self, name: str) -> list[int]:
        """What runs on a host."""
        found = subprocess.run(["ip", "netns", "pids", self.space(name)], capture_output=True, text=True)
        return [int(word) for word in found.stdout.split()]

    def cut(self) -> None:
        _ip("-n", self.space("two"), "link", "set", "cable", "down")

    def mend(self) -> None:
        _ip("-n", self.space("two"), "link", "set", "cable", "up")

    def start(self, mpi: str, *command: str) -> Job:
        """Rank 0 on host one, two more on host two."""
        words, settings = {"openmpi": self._openmpi, "mpich": self._mpich}[mpi]()
        log = self.folder / f"job-{len(self.jobs)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(self.agent), ADDRESSES[0], *words, "-n", "3", *command],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **QUIET, **settings},
            )
        self.jobs.append(Job(process, log))
        return self.jobs[-1]

    def _openmpi(self) -> tuple[list[str], dict[str, str]]:
        settings = {
            "PRTE_MCA_plm": "ssh",
            "PRTE_MCA_plm_ssh_agent": str(self.agent),
            "OMPI_MCA_btl": "self,sm,tcp",
            "OMPI_MCA_pml": "ob1",
        }
        mpiexec = str(Path(sys.executable).with_name("mpiexec"))
        return [mpiexec, "--host", f"{ADDRESSES[0]}:1,{ADDRESSES[1]}:2"], settings

    def _mpich(self) -> tuple[list[str], dict[str, str]]:
        # UCX would find that both hosts share a memory
        settings = {"MPI4PY_LIBMPI": str(MPICH / "lib" / "libmpi.so.12"), "UCX_TLS": "tcp,self"}
        words = [str(MPICH / "bin" / "mpiexec"), "-launcher", "ssh", "-launcher-exec", str(self.agent)]
        return [*words, "-hosts", f"{ADDRESSES[0]}:1,{ADDRESSES[1]}:2"], settings


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)
