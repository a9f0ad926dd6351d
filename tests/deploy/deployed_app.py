"""The app of the deployment tests, as `heroes flower init` writes it, and how its run folder is read."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from loopback import Federation, Service, wait_until


def make_app(folder: Path, nodes: int, *options: str) -> Path:
    """Digits, or what the options say, by Heroes on so many nodes, all in every round.

    The deadline is later than the SuperLink notices a dead node.
    """
    wanted = {
        "seed": 0,
        "federation.clients": nodes,
        "federation.cohort": nodes,
        "strategy.tau_first": 4,
        "strategy.tau_max": 8,
        "server.deadline": 150.0,
        "evaluation.every_width": False,
    }
    changes = [word for key, value in wanted.items() for word in ("--set", f"{key}={str(value).lower()}")]
    command = [sys.executable, "-m", "heroes.cli", "flower", "init", str(folder), *options, *changes]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return folder


def settings(out: Path, rounds: int) -> dict[str, object]:
    """The run config."""
    return {"out": str(out), "rounds": rounds}


def answered(record: dict[str, Any]) -> set[int]:
    """The clients whose updates entered a round."""
    return {entry["client"] for entry in record["clients"]} - missing(record)


def missing(record: dict[str, Any]) -> set[int]:
    """The clients that were asked in vain."""
    return {entry["client"] for entry in record["missing"]}


def run_to_the_end(
    federation: Federation, app: Path, wanted: dict[str, object], patience: float = 400
) -> Service:
    """Run the app and wait for its end, good or bad."""
    run = federation.run(app, wanted)
    wait_until(lambda: run.process.poll() is not None, patience, run, *federation.services)
    return run
