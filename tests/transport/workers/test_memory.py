"""A worker that frees a tensor has its memory for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from heroes.models.cnn import build
from heroes.transport.workers.memory import keep_memory
if {kept}:
    keep_memory()
torch.set_num_threads(1)
model, images = build(4), torch.randn(32, 3, 32, 32)
def step():
    model(images).sum().backward()
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
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
    assert fetched[1] < max(fetched[0] / 2, 3_000), fetched  # with huge pages there are few either way
