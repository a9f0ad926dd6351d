"""Kept results made by hand: for any configuration a curve whose numbers can be followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hand_made import record, write_records

from heroes.settings.config import Config, to_toml
from heroes.studies.kept import Store
from heroes.studies.plans import Plan, rows

SCORES = (0.3, 0.5, 0.7, 0.8, 0.8, 0.8)
SPEEDS = {"heroes": 10.0, "fedavg": 40.0, "adp": 30.0, "heterofl": 20.0, "flanc": 5.0}
"""how long a round takes: in these runs all strategies need as many rounds"""


def keep(
    store: Store,
    config: Config,
    scores: Sequence[float] = SCORES,
    seconds: float = 10.0,
    waiting: float = 1.0,
    stopped: str = "time budget",
) -> Path:
    """Keep a run with these scores, round by round; a round sends as many megabytes as it takes seconds."""
    if config.training.precision == "auto":
        config = config.changed({"training.precision": "bfloat16"})  # a run says what it became
    folder = store.folder.parent / "hand-made" / store.name_of(config)
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(config))
    made = [
        record(n, score, seconds=seconds, megabytes=seconds, waiting=waiting)
        for n, score in enumerate(scores, 1)
    ]
    widths = {1: {"accuracy": 0.25}, 2: {"accuracy": scores[-1]}}
    write_records(folder, [*made[:-1], replace(made[-1], stopped=stopped, scores_by_width=widths)])
    return store.add(folder, 60.0).path


def keep_all(store: Store, plan: Plan, seeds: int = 3, scores: Sequence[float] = SCORES) -> None:
    """Keep every run of a plan; rounds take `SPEEDS`, and a tenth longer with every further seed."""
    for variant in plan.variants:
        for row in rows(plan, variant):
            for number, config in enumerate(row.configs[:seeds]):
                if store.find(config) is None:
                    seconds = SPEEDS.get(config.strategy.name, 50.0) * (1 + number / 10)
                    keep(store, config, scores, seconds=seconds, waiting=seconds / 10)
