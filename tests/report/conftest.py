"""Run folders made by hand, with numbers that can be followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser
from hand_made import write_houses, write_run

from heroes.report import RunData, load_run

Make = Callable[..., Path]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser, started when a test first needs it."""
    with browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def make_run(tmp_path: Path) -> Make:
    """A function that writes a run folder: its name, scores round by round, and what `write_run` takes."""

    def make(name: str, scores: Sequence[float | None], **more: Any) -> Path:
        return write_run(tmp_path / name, scores, **more)

    return make


@pytest.fixture
def rivals(make_run: Make) -> list[RunData]:
    """Heroes and two others over two seeds.

    To 50 %, by the mean of three tests: heroes 40 and 30 s, fedavg 120 and 180 s, flanc 60 s with seed 0.
    """
    fedavg: dict[str, Any] = {"strategy": "fedavg", "seconds": 30.0, "megabytes": 4.0}
    flanc: dict[str, Any] = {"strategy": "flanc", "seconds": 20.0, "megabytes": 2.0, "waiting": 3.0}
    folders = [
        make_run("h0", [0.3, 0.6, 0.4, 0.5, 0.6, 0.7], seed=0),
        make_run("h1", [0.5, 0.5, 0.5, 0.8, 0.8, 0.8], seed=1),
        make_run("a0", [0.3, 0.6, 0.4, 0.5, 0.5, 0.5], **fedavg, waiting=9.0, seed=0),
        make_run("a1", [0.3, 0.3, 0.3, 0.5, 0.5, 0.5], **fedavg, waiting=7.0, seed=1),
        make_run("f0", [0.4, 0.5, 0.6, 0.6, 0.6, 0.6], **flanc, seed=0),
        make_run("f1", [0.4, 0.7, 0.3, 0.3, 0.4, 0.4], **flanc, seed=1),
    ]
    return [load_run(folder) for folder in folders]


@pytest.fixture
def houses(tmp_path: Path) -> list[RunData]:
    return [load_run(folder) for folder in write_houses(tmp_path)]
