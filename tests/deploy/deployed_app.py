"""Which app the deployment tests run, and how its run folder is read. To test another app, change `APP` and `settings`."""

import json
from pathlib import Path
from typing import Any

from loopback import Federation, Service, wait_until

APP = Path(__file__).parent / "standin"


def settings(out: Path, rounds: int, nodes: int, sleep: float = 0.0) -> dict[str, object]:
    """The run config: a node that dies must not end a round before the SuperLink has noticed, which takes it a minute."""
    return {"out": str(out), "rounds": rounds, "nodes": nodes, "sleep": sleep, "timeout": 150.0}


def records(out: Path) -> list[dict[str, Any]]:
    """The lines of a run folder that are complete."""
    path = out / "records.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def answered(record: dict[str, Any]) -> set[int]:
    """The clients whose updates entered a round."""
    return {entry["client"] for entry in record["clients"]} - missing(record)


def missing(record: dict[str, Any]) -> set[int]:
    """The clients that were asked in vain."""
    return {entry["client"] for entry in record["missing"]}


def run_to_the_end(federation: Federation, wanted: dict[str, object], patience: float = 240) -> Service:
    """Run the app and wait for its end, good or bad."""
    run = federation.run(APP, wanted)
    wait_until(lambda: run.process.poll() is not None, patience, run, *federation.services)
    return run
