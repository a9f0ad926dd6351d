"""All commands. They put themselves into the app when they are imported."""

from heroes.cli import comparing, data, describing, flower, listing, running, studying, tuning
from heroes.cli.app import run

__all__ = ["comparing", "data", "describing", "flower", "listing", "run", "running", "studying", "tuning"]
