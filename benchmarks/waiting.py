"""How long clients of Heroes wait, and how wide and how long they train: planned rounds, nothing trained.

Its plans depend on devices and links alone, so a hundred rounds take no time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import save, show
from benchmarks.limit import CASES, Case
from heroes import recipes, rounds
from heroes.assemble import Own, assembled
from heroes.models import MODELS
from heroes.transport.engines import in_process

CHANGES: dict[str, dict[str, Any]] = {
    "by default": {},
    "widths by compute alone": {"strategy.useful": 0.0},
    "32 bits": {"exchange.up_bits": 32, "exchange.down_bits": 32},
}


def main(quick: bool) -> None:
    number = 10 if quick else 100
    figures = [
        {"case": name, "settings": label} | measured(case, changes, number)
        for name, case in CASES.items()
        for label, changes in CHANGES.items()
    ]
    rows = [
        [
            f"{f['case']}, {f['settings']}",
            f"{f['waiting']:.1%}",
            f"{f['seconds']:.2f} s",
            f"{f['transfer']:.0%}",
            f"{f['tau']:.0f}",
            f"{f['least_tau']}",
            " ".join(f"{share:.0%}" for share in f["widths"]),
        ]
        for f in figures
    ]
    head = ["", "waiting", "a round", "transfer", "steps", "fewest", "clients by width"]
    show("Planned rounds of Heroes", head, rows, f"means over {number} rounds, as shares of a round")
    save("waiting", figures)


def measured(case: Case, changes: dict[str, Any], number: int) -> dict[str, Any]:
    """What the plans of so many rounds come to."""
    wanted = {"data.name": "own", "engine.name": "in_process", **changes}
    config = recipes.recipe(case.recipe).changed(wanted)
    model = partial(MODELS[config.model.name], max_width=config.model.max_width, classes=case.classes)
    with assembled(config, in_process.opened, Own(model, case.data())) as federation:
        strategy, state = federation.strategy, federation.strategy.begin(0)
        given = []
        for done in range(number):
            now = replace(state, round=done)
            cohort = federation.fleet.status(rounds.sample(federation, now), done + 1)
            given.append(strategy.assign(now, cohort).assignments)
    ends = np.array([[a.seconds for a in plan] for plan in given])
    longest = ends.max(axis=1)
    each = [a for plan in given for a in plan]
    widths = np.bincount([a.selection.width for a in each], minlength=config.model.max_width + 1)[1:]
    return {
        "waiting": float(np.mean((longest[:, None] - ends).mean(axis=1) / longest)),
        "seconds": float(longest.mean()),
        "transfer": float(np.mean([a.transfer_seconds / a.seconds for a in each])),
        "tau": float(np.mean([a.tau for a in each])),
        "least_tau": min(a.tau for a in each),
        "widths": (widths / widths.sum()).tolist(),
    }
