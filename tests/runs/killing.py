"""Runs and resumes a tiny federation again and again, killing it each time.

It is killed at the n-th file operation in the run folder, or at a random moment. A program of its own, with
`kill_at.c` preloaded; every trial is a forked process.

    python killing.py operations FOLDER STEP     every STEP-th operation of every scene
    python killing.py moments FOLDER KILLS SEED  so many kills of one run

It prints what it did as JSON, and fails at the first run that ends with other bits.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from heroes.errors import HeroesError
from heroes.runs.running import resume, run
from heroes.settings.config import Config
from heroes.settings.recipes import recipe
from heroes.transport.engines import in_process  # noqa: F401 (what every process needs is loaded once)

SAME = ("config.toml", "records.jsonl", "model.safetensors")
TINY = {
    "engine.name": "in_process",
    "federation.clients": 4,
    "federation.cohort": 2,
    "federation.rounds": 2,
    "model.max_width": 1,
    "data.test_limit": 20,
    "strategy.tau_first": 2,
    "training.device": "cpu",
}
Act = Callable[[], object]
LIBRARY = ctypes.CDLL(None)  # this process, with what is preloaded into it


def config(rounds: int, **changes: object) -> Config:
    return recipe("digits", "heroes").changed(TINY | {"federation.rounds": rounds} | changes)


def begun(act: Act, folder: Path, kill_at: int) -> int:
    """A process that acts; it is killed at this operation in the folder, or never if that is 0."""
    child = os.fork()
    if child:
        return child
    try:
        LIBRARY.arm(os.fsencode(folder), ctypes.c_long(kill_at))
        act()
        LIBRARY.arm(b"", ctypes.c_long(0))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child: int) -> int:
    """How it ended: 0, or minus a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def done(act: Act) -> None:
    """Undisturbed, in a process of its own as well: one that has trained cannot be forked safely."""
    assert ended(begun(act, Path("/nowhere"), 0)) == 0


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SAME}


def gone_on(folder: Path, rounds: int, replaces: bytes | None = None) -> None:
    """What a user would do next: resume, or run where there is nothing to go on from."""
    there = folder / "config.toml"
    if replaces is not None and there.exists() and there.read_bytes() == replaces:
        run(config(rounds), out=folder, overwrite=True)
        return
    try:
        resume(folder, {"federation.rounds": rounds})
    except HeroesError as error:
        if "is finished" in str(error):
            return
        if "is not a run folder" not in str(error):
            raise
        run(config(rounds), out=folder, overwrite=replaces is not None)


def scenes(home: Path) -> dict[str, tuple[Path | None, Act, int]]:
    """By name: the folder to begin with, what is killed, the rounds it should come to."""
    folder = home / "run"
    one, two, bare, other = (home / name for name in ("one", "two", "bare", "other"))
    done(lambda: run(config(1), out=one))
    done(lambda: run(config(2), out=two))
    done(lambda: run(config(3, seed=5), out=other))
    shutil.copytree(two, bare)
    (bare / "model.safetensors").unlink()
    cut = home / "cut"
    shutil.copytree(one, cut)
    for name in ("config.toml", "records.jsonl"):
        shutil.copy(two / name, cut / name)
    return {
        "run": (None, lambda: run(config(2), out=folder), 2),
        "run over another": (
            other,
            lambda: run(config(2), out=folder, overwrite=True),
            2,
        ),
        "resume": (cut, lambda: resume(folder), 2),
        "resume with more rounds": (two, lambda: resume(folder, {"federation.rounds": 3}), 3),
        "resume without a model": (bare, lambda: resume(folder), 2),
    }


def operations(home: Path, step: int) -> dict[str, int]:
    """Kill every scene at every so many operations; how many kills there were."""
    return {name: _killed(home, name, step, *scene) for name, scene in scenes(home).items()}


def _killed(home: Path, name: str, step: int, start: Path | None, act: Act, rounds: int) -> int:
    folder = laid_out(home, start)
    done(act)
    whole, kills = files(folder), 0
    assert rounds > 2 or whole == files(home / "two"), f"{name}, undisturbed: other bits than a whole run"
    replaced = (start / "config.toml").read_bytes() if start is not None and "over" in name else None
    for number in range(1 + len(name) % step, 10_000, step):
        folder = laid_out(home, start)
        how = ended(begun(act, folder, number))
        if how == 0:
            break
        kills += 1
        left = sorted(path.name for path in folder.rglob("*"))
        what = f"{name}, killed at operation {number}, which left {left}"
        assert how == -signal.SIGKILL, f"{what}: it failed by itself"
        assert ended(begun(lambda: gone_on(folder, rounds, replaced), folder, 0)) == 0, what  # noqa: B023
        found = files(folder)
        assert found == whole, f"{what}: other bits in {[n for n in SAME if found[n] != whole[n]]}"
        assert not list(folder.rglob("*.part")), f"{what}: a draft is left"
    return kills


def laid_out(home: Path, start: Path | None) -> Path:
    """The folder as it is before a process begins."""
    folder = home / "run"
    shutil.rmtree(folder, ignore_errors=True)
    if start is not None:
        shutil.copytree(start, folder)
    return folder


def moments(home: Path, wanted: int, seed: int) -> dict[str, int]:
    """Kill runs of a few rounds at random moments, so many times in all."""
    chance, folder, rounds = random.Random(seed), home / "run", 3
    done(lambda: run(config(rounds), out=home / "whole"))
    whole = files(home / "whole")
    began = time.monotonic()
    assert ended(begun(lambda: run(config(rounds), out=folder), folder, 0)) == 0
    longest = time.monotonic() - began
    kills = runs = 0
    while kills < wanted:
        shutil.rmtree(folder, ignore_errors=True)
        runs += 1
        while True:
            child = begun(lambda: gone_on(folder, rounds), folder, 0)
            time.sleep(chance.uniform(0.0, longest))
            os.kill(child, signal.SIGKILL)
            how = ended(child)
            if how == 0:
                break
            assert how == -signal.SIGKILL, f"after {kills} kills a run failed"
            kills += 1
        assert files(folder) == whole, f"after {kills} kills: other bits"
    return {"kills": kills, "runs": runs}


def main(what: str, home: str, *numbers: str) -> None:
    act = {"operations": operations, "moments": moments}[what]
    sys.stdout.write(json.dumps(act(Path(home), *map(int, numbers))))


if __name__ == "__main__":
    main(*sys.argv[1:])
