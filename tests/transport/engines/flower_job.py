"""A process with Flower's simulation, for test_flower: `python flower_job.py FOLDER` runs every scheme in it
and without it.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

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


if __name__ == "__main__":
    with flower.simulated(CLIENTS, partial(at_node, NOTHING), workers=2) as link:
        for name in SCHEMES:
            engine = partial(flower.opened, link=link)
            heroes.run(config(name, "flower"), engine=engine, out=Path(sys.argv[1]) / "flower" / name)
    for name in SCHEMES:
        heroes.run(config(name, "in_process"), out=Path(sys.argv[1]) / "in_process" / name)
