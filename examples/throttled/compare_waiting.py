"""Waiting time on devices that are really slow: a deployed federation whose nodes are throttled, with fixed
tau and with Heroes.

    python examples/throttled/compare_waiting.py --rounds 8

As root on Linux it sets shares of a core and network rates; what cannot be set is said, and sleeps take its
place.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import throttling
from loopback import Federation, Service, program, records, wait_until
from throttling import DEVICES, Means

from heroes.report import load_run, run_pictures, save_figure

TAU = 2000  # steps of everybody with fixed tau, and of the average client with Heroes
VARIANTS = {"fixed tau": ["strategy.adaptive_tau=false"], "heroes": []}
COMMON = {
    "federation.clients": len(DEVICES),
    "federation.cohort": len(DEVICES),
    "strategy.pace": "constant",
    "strategy.tau_first": TAU,
    "strategy.tau_min": TAU // 10,
    "strategy.tau_max": 10 * TAU,
}
PATIENCE = 3600.0  # seconds that one run may take
Record = dict[str, Any]


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
    found = {}
    for name, app in _apps(asked, folder).items():
        place = folder / name.replace(" ", "-")
        print(f"{name}: {asked.rounds} rounds, told in {place / 'federation'}", flush=True)
        found[name] = measure(app, place, asked.rounds, means)
    _print_rounds(found)
    _print_devices(found)
    for name in found:
        run = folder / name.replace(" ", "-") / "run"
        picture = next(picture for picture in run_pictures(load_run(run)) if picture.name == "timeline")
        print(f"the last round, drawn: {save_figure(picture.figure, run.with_name('last-round'))[0]}")


def measure(app: Path, folder: Path, rounds: int, means: Means) -> list[Record]:
    """Deploy an app on throttled nodes; the records of its rounds."""
    with (
        throttling.limits(DEVICES, means) as limits,
        _federation(folder / "federation", limits, means) as federation,
    ):
        federation.superlink()
        for number in range(len(DEVICES)):
            federation.supernode(number)
        run = federation.run(app, {"out": str(folder / "run"), "rounds": rounds})
        told: list[Record] = []
        wait_until(lambda: _told(run, folder / "run", told), PATIENCE, run)
        if not run.well():
            sys.exit(f"the run failed, see {run.log}\n{run.text()[-2000:]}")
        for number, device in enumerate(DEVICES):
            if means.groups:
                print(
                    f"  {folder.name}: {device.name} was held back for "
                    f"{throttling.throttled_seconds(number, means):.1f} s"
                )
    return records(folder / "run")


def _told(service: Service, run: Path, told: list[Record]) -> bool:
    """Say which rounds are new; whether the run is over."""
    over = service.process.poll() is not None
    for record in records(run)[len(told) :]:
        told.append(record)
        print(
            f"  round {record['round']}: {record['duration']:.1f} s, waiting {record['waiting']:.1f} s",
            flush=True,
        )
    return over


def _federation(folder: Path, limits: list[list[str]], means: Means) -> Federation:
    return Federation(
        folder,
        listen="0.0.0.0"
        if means.network
        else "127.0.0.1",  # in a network namespace of our own there is nothing but loopback
        server_for=lambda number: throttling.address(number, means),
        wrap=lambda number: limits[number],
        node_config=lambda number: "" if means.groups else f"slowness={1 / DEVICES[number].share}",
    )


def _apps(asked: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """The apps to compare: both strategies of an experiment, or one app as it is."""
    if asked.app:
        return {asked.app.name: asked.app.absolute()}
    common = [f"{key}={value}" for key, value in COMMON.items()]
    apps = {}
    for name, settings in VARIANTS.items():
        apps[name] = folder / "apps" / name.replace(" ", "-")
        changes = [word for change in (*common, *settings) for word in ("--set", change)]
        subprocess.run(
            [
                program("heroes"),
                "flower",
                "init",
                str(apps[name]),
                "--experiment",
                asked.experiment,
                *changes,
            ],
            check=True,
        )
    return apps


def _said(device: throttling.Device, means: Means) -> str:
    cpu = (
        f"{device.share:g} of a core" if means.groups else f"{1 / device.share:g} times as long, by sleeping"
    )
    return f"{cpu}, {device.megabits:g} Mbit/s" if means.network else cpu


def _print_rounds(found: dict[str, list[Record]]) -> None:
    """What every round took and how long a client waited in it; the first is planned before anything was
    measured.
    """
    names = list(found)
    print(
        "\nseconds of a round, and of waiting, mean over clients\nround "
        + "".join(f"{name:>24}" for name in names)
    )
    shown = [[(record["duration"], record["waiting"]) for record in rounds] for rounds in found.values()]
    for number, pairs in enumerate(zip(*shown, strict=True), 1):
        print(f"{number:5} " + "".join(f"{duration:14.1f}{waiting:10.1f}" for duration, waiting in pairs))
    means = [
        (fmean(pair[0] for pair in pairs[1:] or pairs), fmean(pair[1] for pair in pairs[1:] or pairs))
        for pairs in shown
    ]
    print("from 2" + "".join(f"{duration:14.1f}{waiting:10.1f}" for duration, waiting in means))
    print(
        "waits "
        + "".join(f"{100 * waiting / duration:22.0f} %" for duration, waiting in means)
        + "  of a round"
    )


def _print_devices(found: dict[str, list[Record]]) -> None:
    """What every device was given in the last round and what it made of it."""
    print("\nlast round            width    tau  training  transfer  waiting  (seconds)")
    for name, rounds in found.items():
        for client in sorted(rounds[-1]["clients"], key=lambda each: int(each["client"])):
            given = f"{client['width']:8}{client['tau']:7}"
            took = (
                f"{client['compute_seconds']:10.1f}{client['transfer_seconds']:10.1f}{client['waiting']:9.1f}"
            )
            print(f"{name:12}{DEVICES[client['client']].name:>9}{given}{took}")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Waiting time on throttled nodes, with fixed tau and with Heroes."
    )
    parser.add_argument("--experiment", default="digits", help="an experiment of heroes (digits)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=8,
        help="of each run (8); the first is planned before anything is measured",
    )
    parser.add_argument("--app", type=Path, help="another Flower app to run instead, as it is")
    parser.add_argument("--out", help="where run folders and logs go; by default a new temporary folder")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
