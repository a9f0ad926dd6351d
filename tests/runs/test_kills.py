"""A run that is killed at any file operation, or at any moment, ends with the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCENES = {
    "run",
    "run over another",
    "resume",
    "resume with more rounds",
    "resume without a model",
}
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that kills, compiled."""
    library = tmp_path_factory.mktemp("killer") / "kill_at.so"
    command = [
        "cc",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(HERE / "kill_at.c"),
        "-ldl",
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def killing(killer: Path, home: Path, what: str, *numbers: int) -> dict[str, int]:
    """What `killing.py` counted; it fails at the first run that ends with other bits."""
    command = [sys.executable, str(HERE / "killing.py"), what, str(home), *map(str, numbers)]
    ended = subprocess.run(
        command, env={**os.environ, "LD_PRELOAD": str(killer)}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    counted: dict[str, int] = json.loads(ended.stdout)
    return counted


@pytest.mark.timeout(900)
def test_a_kill_at_some_file_operations_changes_no_bit(killer: Path, tmp_path: Path) -> None:
    counted = killing(killer, tmp_path, "operations", 17)
    assert counted.keys() == SCENES
    assert min(counted.values()) >= 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_kill_at_every_file_operation_changes_no_bit(killer: Path, tmp_path: Path) -> None:
    counted = killing(killer, tmp_path, "operations", 1)
    assert sum(counted.values()) > 100


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_a_thousand_kills_at_random_moments_change_no_bit(killer: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("HEROES_KILL_SEED", "1"))
    assert killing(killer, tmp_path, "moments", 1000, seed)["kills"] >= 1000
