"""All commands. They put themselves into the app when they are imported."""

from heroes.cli import (
    comparing,
    data,
    describing,
    exporting,
    flower,
    flower_deploying,
    listing,
    reproducing,
    running,
    studying,
    tuning,
    watching,
)
from heroes.cli.app import run

__all__ = [
    "comparing",
    "data",
    "describing",
    "exporting",
    "flower",
    "flower_deploying",
    "listing",
    "reproducing",
    "run",
    "running",
    "studying",
    "tuning",
    "watching",
]
