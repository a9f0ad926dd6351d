"""Run folders made by hand, with numbers that can be followed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import record, write_records

from heroes.report import RunData, load_run
from heroes.settings.config import parse, to_toml

Make = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> Make:
    """A function that writes a run folder: scores round by round, the price of a round, and settings."""

    def make(
        name: str,
        scores: Sequence[float | None],
        *,
        strategy: str = "heroes",
        seconds: float = 10.0,
        megabytes: float = 1.0,
        waiting: float = 1.0,
        tail: str = "",
        clock: str = "virtual",
        metric: str = "accuracy",
        lower: bool = False,
        **settings: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        dotted = {key.replace("__", "."): value for key, value in settings.items()}
        toml = to_toml(parse({}).changed(dotted)).replace('name = "heroes"', f'name = "{strategy}"')
        (folder / "config.toml").write_text(toml)
        (folder / "environment.json").write_text(json.dumps({"python": "3.11.7", "system": "Linux"}))
        price = {"seconds": seconds, "megabytes": megabytes, "waiting": waiting}
        kind = {"clock": clock, "metric": metric, "lower_is_better": lower}
        rows = [record(number, score, **price, **kind) for number, score in enumerate(scores, 1)]
        if rows:
            by_width = {1: {metric: 0.25}, 2: {metric: 0.5}}
            rows[-1] = replace(rows[-1], stopped="rounds", scores_by_width=by_width)
        write_records(folder, rows, tail)
        return folder

    return make


@pytest.fixture
def rivals(make_run: Make) -> list[RunData]:
    """Heroes and two others over two seeds. To 50 %: Heroes 20 s, fedavg 60 s, flanc 40 s with seed 0."""
    folders = [
        make_run("h0", [0.4, 0.5, 0.6], seed=0),
        make_run("h1", [0.5, 0.5, 0.7], seed=1),
        make_run("a0", [0.3, 0.5, 0.5], strategy="fedavg", seconds=30.0, megabytes=4.0, waiting=9.0, seed=0),
        make_run("a1", [0.3, 0.3, 0.5], strategy="fedavg", seconds=30.0, megabytes=4.0, waiting=7.0, seed=1),
        make_run("f0", [0.4, 0.5, 0.6], strategy="flanc", seconds=20.0, megabytes=2.0, waiting=3.0, seed=0),
        make_run("f1", [0.4, 0.4, 0.4], strategy="flanc", seconds=20.0, megabytes=2.0, waiting=3.0, seed=1),
    ]
    return [load_run(folder) for folder in folders]


@pytest.fixture
def houses(make_run: Make) -> list[RunData]:
    """Two strategies of which nobody has heard, by RMSE. To 0.5: ours 20 s and 2 MB, theirs 60 s and 12 MB."""
    by = {"metric": "rmse", "lower": True, "task": "houses"}
    folders = [
        make_run("ours", [0.8, 0.5, 0.3], strategy="ours", **by),
        make_run("theirs", [0.9, 0.6, 0.45], strategy="theirs", seconds=20.0, megabytes=4.0, **by),
    ]
    return [load_run(folder) for folder in folders]
