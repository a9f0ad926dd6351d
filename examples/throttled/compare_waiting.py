"""Waiting time on devices that are really slow: a deployed federation whose nodes are throttled, with fixed tau and with Heroes.

    python examples/throttled/compare_waiting.py --rounds 8

As root on Linux it sets shares of a core and network rates; what cannot be set is said, and sleeps take its place.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import throttling
from loopback import Federation, program, wait_until
from throttling import DEVICES, Means

SCHEMES = {"fixed tau": ["--set", "strategy.adaptive_tau=false"], "heroes": []}
PATIENCE = 3600.0  # seconds that one run may take


def main(words: Sequence[str] | None = None) -> None:
    """Run both and print their waiting times side by side."""
    asked = _arguments(words)
    throttling.enter_own_network()
    means = throttling.find_means()
    print("\n".join(means.lines()))
    for device in DEVICES:
        print(f"  {device.name}: {_said(device, means)}")
    throttling.shape(DEVICES, means)
    folder = Path(asked.out or tempfile.mkdtemp(prefix="throttled-")).absolute()
    waiting = {}
    for name, app in _apps(asked, folder).items():
        waiting[name] = measure(app, folder / name.replace(" ", "-"), asked.rounds, means)
    _print_table(waiting)
    print(f"run folders and logs: {folder}")


def measure(app: Path, folder: Path, rounds: int, means: Means) -> list[float]:
    """Deploy an app on throttled nodes; the waiting time of every round, in seconds."""
    with throttling.limits(DEVICES, means) as limits, _federation(folder / "federation", limits, means) as federation:
        federation.superlink()
        for number in range(len(DEVICES)):
            federation.supernode(number)
        run = federation.run(app, {"out": str(folder / "run"), "rounds": rounds})
        wait_until(lambda: run.process.poll() is not None, PATIENCE, run)
        if not run.well():
            sys.exit(f"the run failed, see {run.log}\n{run.text()[-2000:]}")
        for number, device in enumerate(DEVICES):
            if means.groups:
                print(f"  {folder.name}: {device.name} was held back for {throttling.throttled_seconds(number, means):.1f} s")
    return [json.loads(line)["waiting"] for line in (folder / "run" / "records.jsonl").read_text().splitlines()]


def _federation(folder: Path, limits: list[list[str]], means: Means) -> Federation:
    return Federation(
        folder,
        listen="0.0.0.0" if means.network else "127.0.0.1",  # in a network namespace of our own there is nothing but loopback
        server_for=lambda number: throttling.address(number, means),
        wrap=lambda number: limits[number],
        node_config=lambda number: "" if means.groups else f"sleep={DEVICES[number].sleep}",
    )


def _apps(asked: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """The apps to compare: both schemes of a task, or one app as it is."""
    if asked.app:
        return {asked.app.name: asked.app.absolute()}
    many = str(len(DEVICES))
    common = ["--task", asked.task, "--set", f"federation.clients={many}", "--set", f"federation.cohort={many}"]
    apps = {}
    for name, settings in SCHEMES.items():
        apps[name] = folder / "apps" / name.replace(" ", "-")
        subprocess.run([program("heroes"), "flower", "init", str(apps[name]), *common, *settings], check=True)
    return apps


def _said(device: throttling.Device, means: Means) -> str:
    cpu = f"{device.share:g} of a core" if means.groups else f"sleeps {device.sleep:g} s"
    return f"{cpu}, {device.megabits:g} Mbit/s" if means.network else cpu


def _print_table(waiting: dict[str, list[float]]) -> None:
    names = list(waiting)
    print("waiting in seconds, mean over clients\nround  " + "  ".join(f"{name:>12}" for name in names))
    for number, values in enumerate(zip(*waiting.values(), strict=True), 1):
        print(f"{number:5}  " + "  ".join(f"{value:12.2f}" for value in values))
    print(" mean  " + "  ".join(f"{fmean(values):12.2f}" for values in waiting.values()))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Waiting time on throttled nodes, with fixed tau and with Heroes.")
    parser.add_argument("--task", default="digits", help="a task of heroes (digits)")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--app", type=Path, help="another Flower app to run instead, as it is")
    parser.add_argument("--out", help="where run folders and logs go; by default a new temporary folder")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
