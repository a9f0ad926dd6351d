"""The command line in tests: in this process, or in one of its own where that is what is tested, since each
takes the time to import torch.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from patience import patience

from heroes.cli import commands

HEROES = [sys.executable, "-m", "heroes.cli"]
Done = subprocess.CompletedProcess[str]


def heroes(*arguments: str, cwd: Path | None = None) -> Done:
    """What a command prints and its exit code, in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["heroes", *arguments])
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            commands.run()
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return Done(arguments, int(ended.value.code or 0), *said)


def process(*arguments: str, cwd: Path | None = None) -> Done:
    """The same in a process of its own, as scripts and people meet it."""
    return subprocess.run(
        [*HEROES, *arguments], capture_output=True, text=True, timeout=patience(300), cwd=cwd, check=False
    )
