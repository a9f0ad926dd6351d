"""What the benchmarks share: sides that take turns, medians, a table on the screen, figures in a JSON file.

A machine is never quite alone and its speed drifts, so every figure that matters is a ratio between sides
that took turns in one run. The first turn of a side warms up caches, pages and kernels; it is reported apart
and enters no median.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from heroes.report.tables import Table

RESULTS = Path(__file__).parent / "results"


@dataclass
class Side:
    """The seconds that one side took, turn by turn."""

    first: float = 0.0
    turns: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.turns)


def take_turns(sides: Mapping[str, Callable[[], object]], turns: int) -> dict[str, Side]:
    """Call every side once to warm up and then `turns` times, one after the other. A side may return its own
    seconds.
    """
    found = {name: Side() for name in sides}
    for turn in range(turns + 1):
        for name, call in sides.items():
            start = time.perf_counter()
            own = call()
            seconds = own if isinstance(own, float) else time.perf_counter() - start
            if turn == 0:
                found[name].first = seconds
            else:
                found[name].turns.append(seconds)
        say(
            f"turn {turn} of {turns}: "
            + ", ".join(f"{name} {_last(side):.4g} s" for name, side in found.items())
        )
    return found


def ratio(one: Side, other: Side) -> float:
    """How long one side took against the other: the median over turns of the ratio within the turn."""
    return statistics.median(a / b for a, b in zip(one.turns, other.turns, strict=True))


def _last(side: Side) -> float:
    return side.turns[-1] if side.turns else side.first


def say(text: str) -> None:
    """A line of progress; figures go to standard output, this does not."""
    print(text, file=sys.stderr, flush=True)


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """Print a table."""
    table = Table(title, tuple(header), tuple(tuple(row) for row in rows), note)
    print("\n".join(["", *table.lines(), ""]), flush=True)


def save(name: str, figures: object) -> None:
    """Write the figures of a benchmark, and on what machine they were taken, where the next run overwrites
    them.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(
        json.dumps({"benchmark": name, "machine": machine(), "figures": figures}, indent=1) + "\n"
    )
    say(f"wrote {path}")


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
