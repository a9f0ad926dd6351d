"""A process with Flower's simulation, for test_flower: `python flower_job.py JOB FOLDER`, where the job is
`schemes` or `sessions`.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import ray

import heroes
from heroes.assemble import NOTHING, at_node
from heroes.settings.config import Config
from heroes.settings.recipes import recipe
from heroes.transport.engines import flower

CLIENTS = 8
SCHEMES = {  # with how many bits up and down
    "heroes": (32, 32),
    "fedavg": (8, 8),
    "adp": (16, 32),
    "heterofl": (4, 16),
    "flanc": (2, 8),
}


def config(scheme: str, engine: str) -> Config:
    up, down = SCHEMES[scheme]
    small = {
        "federation.clients": CLIENTS,
        "federation.cohort": 3,
        "federation.rounds": 2,
        "training.device": "cpu",
    }
    chosen = {"exchange.up_bits": up, "exchange.down_bits": down, "engine.name": engine}
    return recipe("digits", scheme).changed({**small, **chosen})


def schemes(folder: Path) -> None:
    """Every scheme in one simulation, and without it."""
    with flower.simulated(CLIENTS, partial(at_node, NOTHING), workers=2) as link:
        engine = partial(flower.opened, link=link)
        for name in SCHEMES:
            heroes.run(config(name, "flower"), engine=engine, out=folder / "flower" / name)
    for name in SCHEMES:
        heroes.run(config(name, "in_process"), out=folder / "in_process" / name)


def sessions(folder: Path) -> None:
    """Two runs with a simulation each, the first of which fails; and one without."""

    def fail(record: object) -> None:
        raise ValueError("out of paper")

    with suppress(ValueError):
        heroes.run(config("heroes", "flower"), on_round=fail)
    left = [thread.name for thread in threading.enumerate() if thread.name == "heroes-flower"]
    again = heroes.run(config("heroes", "flower"))
    reference = heroes.run(config("heroes", "in_process"))
    found = {"left": left, "same": again.records == reference.records, "over": not ray.is_initialized()}
    (folder / "sessions.json").write_text(json.dumps(found))


if __name__ == "__main__":
    {"schemes": schemes, "sessions": sessions}[sys.argv[1]](Path(sys.argv[2]))
