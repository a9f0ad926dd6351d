"""Two thousand rounds of digits on bad days: does memory stay flat, and are handles and processes given back?

Every kind of fault is on, clients are hostile, the server defends itself and writes a checkpoint after every
round; every hundred rounds a worker process is killed for real. Memory is what the server and its workers
have taken for themselves, shared pages counted once; mapped files are left out, since their share depends on
who else has them open.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import save, say, show
from heroes import recipes, run
from heroes.messages import RoundRecord

ROUNDS, QUICK, WARM_UP, GROWTH = 2000, 60, 0.1, 0.05
SETTINGS: dict[str, Any] = {
    "federation.cohort": 4,  # it is rounds that count here
    "strategy.tau_first": 4,
    "strategy.tau_max": 8,
    "faults.dropout": 0.1,
    "faults.upload_loss": 0.05,
    "faults.crash": 0.05,
    "faults.stall": 0.05,
    "faults.garbage": 0.1,
    "faults.attackers": 0.1,
    "faults.availability": "day_night",
    "faults.day": 600.0,
    "server.deadline_factor": 2.0,
    "server.at_least": 2,
    "server.attempts": 50,
    "server.oversample": 1.5,
    "robust.guard": True,
    "exchange.up_bits": 8,
    "exchange.error_feedback": True,
    "evaluation.every": 20,
    "training.learning_rate": 0.02,
}


def main(quick: bool) -> None:
    rounds = QUICK if quick else ROUNDS
    seen: list[dict[str, float]] = []
    before = _handles()
    start = time.perf_counter()

    def watch(record: RoundRecord) -> None:
        if record.round % (rounds // 40 or 1) == 0:
            seen.append(
                {
                    "round": record.round,
                    "megabytes": _memory(),
                    "handles": _handles(),
                    "processes": len(_children()),
                }
            )
            say(", ".join(f"{name} {value:.1f}" for name, value in seen[-1].items()))
        if record.round % 100 == 50:
            os.kill(_children()[0], signal.SIGKILL)

    with tempfile.TemporaryDirectory() as folder:
        finished = run(
            recipes.digits(rounds=rounds).changed(SETTINGS), out=Path(folder) / "run", on_round=watch
        )
        after, left, summary = _handles(), len(_children()), finished.summary()
    warm = [each["megabytes"] for each in seen if each["round"] > WARM_UP * rounds]
    growth = median(warm[-5:]) / median(warm[:5]) - 1
    rows = [
        ("rounds", f"{summary.rounds} in {time.perf_counter() - start:.0f} s"),
        ("accuracy", f"{100 * (summary.accuracy or 0):.2f} %"),
        ("memory after warm-up", f"{median(warm[:5]):.0f} MB"),
        (
            "memory at the end",
            f"{median(warm[-5:]):.0f} MB, {100 * growth:+.1f} % (goal: below {100 * GROWTH:g} %)",
        ),
        ("file handles before and after", f"{before} and {after}"),
        ("processes left", str(left)),
        ("lost updates", ", ".join(f"{count} {cause}" for cause, count in summary.missing.items())),
        ("begun again", str(summary.repeated)),
    ]
    show("Soak", ("what", "figure"), rows)
    if not quick:
        save("soak", {"rows": dict(rows), "growth": growth, "seen": seen})


def _children() -> list[int]:
    return [int(child) for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def _memory() -> float:
    """Megabytes of this process and its children."""
    return sum(_proportional(pid) for pid in (os.getpid(), *_children())) / 1e6


def _proportional(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
