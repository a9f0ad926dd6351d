"""A process with Flower's simulation, for test_flower: `python flower_job.py JOB FOLDER`, where the job is
`strategies` or `sessions`.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[2] / "waiting"))

from own_strategy import FedRolex  # type: ignore[import-not-found]
from representatives import representatives  # type: ignore[import-not-found]

import heroes
from heroes.assemble import NOTHING, at_node
from heroes.settings.config import Config
from heroes.settings.recipes import recipe
from heroes.strategies.registry import BUILT_IN
from heroes.transport.engines import flower

CLIENTS = 8
CARRIED = [name for name in representatives() if "exchange.error_feedback" not in BUILT_IN[name].requires]
BITS = dict(zip(CARRIED, cycle([(32, 32), (16, 32), (8, 8), (2, 8), (4, 16)]), strict=False))  # up and down


def config(strategy: str, engine: str) -> Config:
    up, down = BITS[strategy]
    small = {
        "federation.clients": CLIENTS,
        "federation.cohort": 3,
        "federation.rounds": 2,
        "training.device": "cpu",
    }
    chosen = {"exchange.up_bits": up, "exchange.down_bits": down, "engine.name": engine}
    return recipe("digits", strategy).changed({**small, **chosen})


def strategies(folder: Path) -> None:
    """Every strategy in one simulation, and without it."""
    with flower.simulated(CLIENTS, partial(at_node, NOTHING), workers=2) as link:
        engine = partial(flower.opened, link=link)
        for name in BITS:
            heroes.run(config(name, "flower"), engine=engine, out=folder / "flower" / name)
    for name in BITS:
        heroes.run(config(name, "in_process"), out=folder / "in_process" / name)


def sessions(folder: Path) -> None:
    """Two runs with a simulation each, the first of which fails, the other with a strategy of one's own."""

    def fail(record: object) -> None:
        raise ValueError("out of paper")

    with suppress(ValueError):
        heroes.run(config("heroes", "flower"), on_round=fail)
    left = [thread.name for thread in threading.enumerate() if thread.name == "heroes-flower"]
    again = heroes.run(config("fedavg", "flower"), strategy=FedRolex(tau=3))
    reference = heroes.run(config("fedavg", "in_process"), strategy=FedRolex(tau=3))
    found = {"left": left, "same": again.records == reference.records, "over": not ray.is_initialized()}
    (folder / "sessions.json").write_text(json.dumps(found))


if __name__ == "__main__":
    {"strategies": strategies, "sessions": sessions}[sys.argv[1]](Path(sys.argv[2]))
