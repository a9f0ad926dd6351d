"""A process with one of Flower's simulations, for test_flower: `flower_job.py strategies|failed FOLDER`."""

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
        "engine.wait_seconds": 1200.0,  # Ray starts a process for a node, on however busy a machine
    }
    chosen = {"exchange.up_bits": up, "exchange.down_bits": down, "engine.name": engine}
    return recipe("digits", strategy).changed({**small, **chosen})


def strategies(folder: Path) -> None:
    """A strategy of every kind in one simulation, and without it."""
    with flower.simulated(CLIENTS, partial(at_node, NOTHING), workers=2) as link:
        engine = partial(flower.opened, link=link)
        for name in CARRIED:
            heroes.run(config(name, "flower"), engine=engine, out=folder / "flower" / name)
    for name in CARRIED:
        heroes.run(config(name, "in_process"), out=folder / "in_process" / name)


def failed(folder: Path) -> None:
    """A run with a strategy of one's own, which fails after a round, and its simulation with it."""
    seen: list[object] = []

    def fail(record: object) -> None:
        seen.append(record)
        raise ValueError("out of paper")

    with suppress(ValueError):
        heroes.run(config("fedavg", "flower"), strategy=FedRolex(tau=3), on_round=fail)
    left = [thread.name for thread in threading.enumerate() if thread.name == "heroes-flower"]
    reference = heroes.run(config("fedavg", "in_process"), strategy=FedRolex(tau=3))
    found = {"left": left, "same": seen == list(reference.records[:1]), "over": not ray.is_initialized()}
    (folder / "failed.json").write_text(json.dumps(found))


if __name__ == "__main__":
    {"strategies": strategies, "failed": failed}[sys.argv[1]](Path(sys.argv[2]))
