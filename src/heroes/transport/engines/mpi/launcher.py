"""The mpiexec that started this process, if it runs on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_NAMES = {"mpiexec", "mpirun", "prterun", "orterun", "mpiexec.hydra"}
# politely, soon again, which Open MPI takes for "at once", and for good; no more once it has gone
_END = "sleep 10; kill -TERM {0} && sleep 1 && kill -TERM {0} && sleep 3 && kill -KILL {0}"


def end_launcher() -> None:
    """Let mpiexec end, some seconds after this process.

    When a machine cannot be reached, an mpiexec waits for it until TCP gives up, a quarter of an hour.
    """
    for process in _launchers(os.getppid()):
        subprocess.Popen(  # outlives this process, which ends now
            ["sh", "-c", _END.format(process)],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _launchers(process: int) -> Iterator[int]:
    """The nearest of this process and those above it that is an mpiexec, if there is one."""
    while process > 1:
        try:
            name, _, rest = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            return
        if name in _NAMES:
            yield process
            return
        process = int(rest.split()[1])
