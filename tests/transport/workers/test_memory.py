"""A worker that frees a tensor has its memory for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from heroes.transport.workers.memory import keep_memory
if {kept}:
    keep_memory()
def step():
    torch.ones(2**24)  # 64 MB
for _ in range(2):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_memory_is_fetched_once():
    fetched = [
        int(
            subprocess.run(
                [sys.executable, "-c", FAULTS.format(kept=kept)], capture_output=True, check=True
            ).stdout
        )
        for kept in (False, True)
    ]
    pages = 4 * 64 * 2**20 // 4096
    assert fetched[1] < pages // 20 < fetched[0]
