"""Run folders made by hand, with numbers that can be followed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heroes.report import RunData, load_run
from heroes.settings.config import parse, to_toml

Make = Callable[..., Path]
DEVICES = ("board-1", "board-2")


def client(number: int, waiting: float) -> dict[str, Any]:
    return {
        "client": number,
        "device": DEVICES[number % 2],
        "width": 1 + number % 2,
        "tau": 5 + number,
        "compute_seconds": 6.0 - waiting,
        "transfer_seconds": 4.0,
        "waiting": waiting,
    }


def record(
    number: int, accuracy: float | None, *, seconds: float, megabytes: float, waiting: float
) -> dict[str, Any]:
    """Round `number`: each round takes `seconds`, sends `megabytes` and lets clients wait."""
    return {
        "round": number,
        "seconds": seconds * number,
        "duration": seconds,
        "waiting": waiting,
        "traffic": int(1e6 * megabytes * number),
        "accuracy": accuracy,
        "loss": 1.0,
        "missing": [],
        "facts": {"counters": [10 * number, 8 * number, 8 * number, 12 * number]},
        "clients": [client(0, waiting), client(1, 0.0)],
        "stopped": None,
    }


@pytest.fixture
def make_run(tmp_path: Path) -> Make:
    """A function that writes a run folder: accuracies round by round, the price of a round, and settings."""

    def make(
        name: str,
        accuracies: Sequence[float | None],
        *,
        scheme: str = "heroes",
        seconds: float = 10.0,
        megabytes: float = 1.0,
        waiting: float = 1.0,
        tail: str = "",
        clock: str | None = None,
        **settings: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        dotted = {key.replace("__", "."): value for key, value in settings.items()}
        toml = to_toml(parse({}).changed(dotted)).replace('name = "heroes"', f'name = "{scheme}"')
        (folder / "config.toml").write_text(toml)
        (folder / "environment.json").write_text(json.dumps({"python": "3.11.7", "system": "Linux"}))
        rows = [
            record(number, accuracy, seconds=seconds, megabytes=megabytes, waiting=waiting)
            for number, accuracy in enumerate(accuracies, 1)
        ]
        if clock is not None:
            rows = [row | {"clock": clock} for row in rows]
        if rows:
            rows[-1] |= {"stopped": "rounds", "accuracy_by_width": {"1": 0.25, "2": 0.5}}
        (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
        return folder

    return make


@pytest.fixture
def rivals(make_run: Make) -> list[RunData]:
    """Heroes and two others over two seeds. To 50 %: Heroes 20 s, fedavg 60 s, flanc 40 s with seed 0."""
    folders = [
        make_run("h0", [0.4, 0.5, 0.6], seed=0),
        make_run("h1", [0.5, 0.5, 0.7], seed=1),
        make_run("a0", [0.3, 0.5, 0.5], scheme="fedavg", seconds=30.0, megabytes=4.0, waiting=9.0, seed=0),
        make_run("a1", [0.3, 0.3, 0.5], scheme="fedavg", seconds=30.0, megabytes=4.0, waiting=7.0, seed=1),
        make_run("f0", [0.4, 0.5, 0.6], scheme="flanc", seconds=20.0, megabytes=2.0, waiting=3.0, seed=0),
        make_run("f1", [0.4, 0.4, 0.4], scheme="flanc", seconds=20.0, megabytes=2.0, waiting=3.0, seed=1),
    ]
    return [load_run(folder) for folder in folders]
