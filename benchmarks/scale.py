"""A hundred to a million clients, and cohorts of ten to a thousand: set-up, seconds a round, memory.

Every configuration is a federation in a process of its own, with two workers, that runs rounds when it is
told to: all of them are there at the same time and take turns. So that rounds are the same work whoever is
drawn, devices are equal and everyone does two steps, few enough for what the server does to show; clients
draw 50 examples each. Rounds include the estimates when it is time for them (cohorts: only in the first
round), and no evaluation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import ratio, save, say, show, take_turns
from heroes import Config, recipes, seeds
from heroes.assemble import Own, assembled
from heroes.assemble.world import dataset
from heroes.rounds import run_round
from heroes.transport.engines import processes

CLIENTS = (100, 1_000, 10_000, 100_000, 1_000_000)
COHORTS = (10, 30, 100, 300, 1_000)
SETUP_SECONDS, MORE_MEGABYTES, MORE_TIME = 5.0, 300.0, 0.05  # the goals: a million against a hundred


def main(quick: bool) -> None:
    by_clients = _series([(clients, 10) for clients in CLIENTS], burst=5, turns=1 if quick else 12)
    _show_clients(by_clients)
    cohorts = [(100_000, cohort) for cohort in (COHORTS[:3] if quick else COHORTS)]
    by_cohort = _series(cohorts, burst=1, turns=1 if quick else 2, probe_every=10_000)
    _show_cohorts(by_cohort)
    save("scale", {"clients": by_clients, "cohorts": by_cohort})


def _series(
    cases: list[tuple[int, int]], burst: int, turns: int, probe_every: int = 5
) -> list[dict[str, Any]]:
    """What the federations of these sizes took, in bursts of rounds one after the other; ratios are to the
    first of them.
    """
    sides = {
        f"{clients:,} / {cohort:,}": Side(clients, cohort, probe_every, burst) for clients, cohort in cases
    }
    try:
        before = {name: side.cpu() for name, side in sides.items()}
        found = take_turns({name: side.burst for name, side in sides.items()}, turns)
        rounds, first = burst * (turns + 1), next(iter(found.values()))
        return [
            {
                **side.facts,
                "round": found[name].median,
                "ratio": ratio(found[name], first),
                "cpu": (side.cpu() - before[name]) / rounds,
                **side.memory(),
            }
            for name, side in sides.items()
        ]
    finally:
        for side in sides.values():
            side.close()


def _show_clients(rows: list[dict[str, Any]]) -> None:
    header = [
        "clients",
        "set-up s",
        "whole start s",
        "first round s",
        "round ms",
        "ratio",
        "CPU ms",
        "PSS MB",
        "more MB",
        "peak RSS MB",
    ]
    cells = [
        [
            f"{r['clients']:,}",
            *(f"{r[key]:.2f}" for key in ("setup", "start", "first_round")),
            f"{1e3 * r['round']:.1f}",
            f"{r['ratio']:.3f}",
            f"{1e3 * r['cpu']:.1f}",
            f"{r['pss']:.0f}",
            f"{r['pss'] - rows[0]['pss']:+.0f}",
            f"{r['peak']:.0f}",
        ]
        for r in rows
    ]
    goals = (
        f"set-up below {SETUP_SECONDS:g} s, ratio below {1 + MORE_TIME:g}, below {MORE_MEGABYTES:g} MB more"
    )
    show("clients, 10 of them a round", header, cells, f"goals for the last: {goals}")


def _show_cohorts(rows: list[dict[str, Any]]) -> None:
    header = ["cohort", "round s", "ms a client", "CPU ms a client", "PSS MB", "peak RSS MB"]
    cells = [
        [
            f"{r['cohort']:,}",
            f"{r['round']:.3f}",
            *(f"{1e3 * r[key] / r['cohort']:.2f}" for key in ("round", "cpu")),
            f"{r['pss']:.0f}",
            f"{r['peak']:.0f}",
        ]
        for r in rows
    ]
    show(
        "cohorts out of 100,000 clients",
        header,
        cells,
        "goal: milliseconds a client and memory stay the same",
    )


class Side:
    """A federation in a process of its own; `burst` runs some rounds and gives their mean seconds."""

    def __init__(self, clients: int, cohort: int, probe_every: int, burst: int) -> None:
        start = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.scale", *map(str, (clients, cohort, probe_every))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = self._answer()
        self.facts = {"clients": clients, "cohort": cohort, **ready, "start": time.perf_counter() - start}
        self.facts["first_round"] = self._rounds(1)
        if burst > 1:
            self._rounds(burst - 1)  # from here on every burst has as many rounds with estimates
        self._count = burst
        say(f"{clients:,} clients, cohort {cohort:,}: ready")

    def burst(self) -> float:
        return self._rounds(self._count)

    def _rounds(self, count: int) -> float:
        assert self.process.stdin is not None
        print(count, file=self.process.stdin, flush=True)
        return float(self._answer()["seconds"]) / count

    def cpu(self) -> float:
        """Processor seconds of all its processes since they started."""
        fields = [
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for pid in _tree(self.process.pid)
        ]
        return sum(int(user) + int(system) for user, system in (each[11:13] for each in fields)) / os.sysconf(
            "SC_CLK_TCK"
        )

    def memory(self) -> dict[str, float]:
        """Megabytes of all its processes, what they share counted once, and the most that the server process
        ever had.
        """
        family = list(_tree(self.process.pid))
        pss = sum(_kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") for pid in family)
        return {
            "pss": pss / 1e3,
            "peak": _kilobytes(Path(f"/proc/{self.process.pid}/status"), "VmHWM:") / 1e3,
        }

    def close(self) -> None:
        self.process.communicate()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _tree(int(child))


def _kilobytes(path: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name))


def _config(clients: int, cohort: int, probe_every: int) -> Config:
    return recipes.digits(rounds=10_000).changed(
        {
            "federation.clients": clients,
            "federation.cohort": cohort,
            "data.examples_per_client": 50,
            "fleet.name": "equal",
            "training.probe_every": probe_every,
            "strategy.tau_first": 2,
            "strategy.tau_max": 2,
            "engine.workers": 2,
        }
    )


def _serve(clients: int, cohort: int, probe_every: int) -> None:
    """The other end of a `Side`: for every number on a line run so many rounds and say how long they took."""
    config = _config(clients, cohort, probe_every)
    data = dataset(config, None, config.seed)
    start = time.perf_counter()
    with assembled(config, processes.opened, Own(data=data)) as federation:
        print(json.dumps({"setup": time.perf_counter() - start}), flush=True)
        state = federation.strategy.begin(seeds.number(config.seed, "model"))
        for line in sys.stdin:
            start = time.perf_counter()
            for _ in range(int(line)):
                state, _record = run_round(federation, state)
            print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
