"""How long the server takes to decide who trains what: `Heroes.assign` in mid-run, for cohorts of ten to ten
thousand.

The goals are for the default settings; the other block choices and deadline rules are shown beside them.
Devices are as fast as it takes for all widths to be met equally often: with most clients at full width there
would be little to choose. Seconds are those of the processor, since one thread decides and waits for nothing:
what else the machine does counts for less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import save, show, take_turns
from heroes import recipes, seeds
from heroes.assemble import assembled
from heroes.fleet import FLEETS, Fleet
from heroes.messages import Cohort, ServerState
from heroes.planning.pacing import Estimates
from heroes.strategies.heroes import Heroes, HeroesMemory
from heroes.transport.engines import in_process

GOALS = {10: 1e-3, 100: 3e-3, 1_000: 20e-3, 10_000: 200e-3}  # clients in the cohort: seconds
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "grid": {"blocks": "grid", "pace": "calibrated", "rho": "auto"},
    "free": {"blocks": "free", "pace": "calibrated", "rho": "auto"},
    "free, fastest": {"blocks": "free", "pace": "calibrated", "rho": "auto", "deadline": "fastest"},
}


def main(quick: bool) -> None:
    figures = [_measured(max_width, cohort, quick) for max_width in (4, 16) for cohort in GOALS]
    rows = [
        [
            str(f["max_width"]),
            f"{f['cohort']:,}",
            f"{1e3 * f['goal']:g}",
            *(f"{1e3 * s:.2f}" for s in f["seconds"].values()),
        ]
        for f in figures
    ]
    show(
        "milliseconds to assign",
        ["P", "clients", "goal", *SETTINGS],
        rows,
        "medians; the goal is for the default settings",
    )
    save("assignment", figures)


def _measured(max_width: int, cohort: int, quick: bool) -> dict[str, Any]:
    strategy, state = mid_run(max_width)
    clients = all_widths(
        strategy, Fleet(FLEETS["boards"], cohort, 0).status(np.arange(cohort), state.round + 1)
    )
    calls = 3 if quick else max(3, 2_000 // cohort)
    sides = {
        name: _assigning(strategy.model_copy(update=changes), state, clients, calls)
        for name, changes in SETTINGS.items()
    }
    found = take_turns(sides, 1 if quick else 9)
    return {
        "max_width": max_width,
        "cohort": cohort,
        "goal": GOALS[cohort],
        "seconds": {name: side.median for name, side in found.items()},
        "first": {name: side.first for name, side in found.items()},
    }


def mid_run(max_width: int) -> tuple[Heroes, ServerState[HeroesMemory]]:
    """The digits recipe at this P, some rounds on: blocks unevenly trained, estimates there, the pace
    calibrated.
    """
    config = recipes.digits().changed({"model.max_width": max_width, "engine.name": "in_process"})
    with assembled(config, in_process.opened) as federation:
        strategy = federation.strategy
    assert isinstance(strategy, Heroes)
    counters = seeds.stream(0, "counters").integers(300, 400, max_width**2)
    memory = HeroesMemory(tuple(counters.tolist()), Estimates(0.5, 8.0, 4.0, 15.0), 12.0, 1.0)
    return strategy, replace(strategy.begin(0), round=17, seconds=100.0, memory=memory)


def all_widths(strategy: Heroes, cohort: Cohort) -> Cohort:
    """The same clients with speeds at which every width is the widest that some can afford."""
    widths = seeds.stream(0, "widths").permutation(np.arange(len(cohort)) % strategy.family.max_width)
    costs = strategy.ground.costs
    limit = costs.step_flops[-1] / cohort.fastest  # the step limit `own`
    speed = 1.01 * costs.step_flops[widths] / limit
    return replace(cohort, speed=speed, usual=speed)


def _assigning(
    strategy: Heroes, state: ServerState[HeroesMemory], cohort: Cohort, calls: int
) -> Callable[[], float]:
    def seconds() -> float:
        start = time.thread_time()
        for _ in range(calls):
            strategy.assign(state, cohort)
        return (time.thread_time() - start) / calls

    return seconds
