"""The memory of a node is that of all its processes, and of no other."""

import subprocess
import sys

import pytest
from patience import patience

from heroes.transport.engines.flower.weighing import node_memory

LARGE = 64 * 2**20
CODE = f"""
import os
from heroes.transport.engines.flower.weighing import node_memory
held = bytearray(os.urandom({LARGE}))
read, write = os.pipe()
if not os.fork():
    held = None
    os.write(write, str(node_memory()["memory"]).encode())
    os._exit(0)
print(os.read(read, 99).decode())
"""


def told(*words: str) -> int:
    """What a process says that was forked by one with these words in its command."""
    command = [sys.executable, "-c", CODE, *words]
    return int(subprocess.run(command, capture_output=True, check=True, timeout=patience(120)).stdout)


@pytest.mark.slow
def test_processes_above_count_if_they_are_the_nodes() -> None:
    assert told("flower") - told("gardener") > LARGE / 2


def test_a_system_that_says_nothing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert node_memory()["memory"] > 0
    monkeypatch.setattr("heroes.transport.engines.flower.weighing._bytes", _refused)
    assert node_memory() == {}


def _refused(number: int) -> int:
    raise PermissionError(number)
