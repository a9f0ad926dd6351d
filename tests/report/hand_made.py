"""Records made by hand, with numbers that can be followed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heroes.messages import ClientRecord, RoundRecord, plain
from heroes.settings.config import parse, to_toml

DEVICES = ("board-1", "board-2")


def client(number: int, waiting: float) -> ClientRecord:
    return ClientRecord(
        client=number,
        device=DEVICES[number % 2],
        width=1 + number % 2,
        groups=(),
        pieces=(),
        tau=5 + number,
        compute_seconds=6.0 - waiting,
        transfer_seconds=4.0,
        waiting=waiting,
        bytes_up=0,
        bytes_down=0,
        straggler=False,
        loss=None,
        samples=100 if number == 0 else 50,
    )


def record(
    number: int,
    score: float | None = None,
    *,
    seconds: float = 10.0,
    megabytes: float = 1.0,
    waiting: float = 1.0,
    **more: Any,
) -> RoundRecord:
    """Round `number`: each round takes `seconds`, sends `megabytes` and lets clients wait."""
    made = RoundRecord(
        round=number,
        seconds=seconds * number,
        duration=seconds,
        waiting=waiting,
        bytes_up=0,
        bytes_down=int(1e6 * megabytes),
        traffic=int(1e6 * megabytes * number),
        learning_rate=0.1,
        loss=1.0,
        missing=(),
        clients=(client(0, waiting), client(1, 0.0)),
        facts={"counters": [10 * number, 8 * number, 8 * number, 12 * number]},
        scores={} if score is None else {more.get("metric", "accuracy"): score},
    )
    return replace(made, **more)


def write_records(folder: Path, rows: Sequence[RoundRecord], tail: str = "") -> None:
    text = "".join(json.dumps(plain(row)) + "\n" for row in rows)
    (folder / "records.jsonl").write_text(text + tail)


def write_run(
    folder: Path,
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
    joules: float | None = None,
    **settings: Any,
) -> Path:
    """A run folder: scores round by round, the price of a round, and settings (`data__phi`: data.phi)."""
    folder.mkdir()
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    toml = to_toml(parse({}).changed(dotted)).replace('name = "heroes"', f'name = "{strategy}"')
    (folder / "config.toml").write_text(toml)
    (folder / "environment.json").write_text(json.dumps({"python": "3.11.7", "system": "Linux"}))
    price = {"seconds": seconds, "megabytes": megabytes, "waiting": waiting}
    kind: dict[str, Any] = {"clock": clock, "metric": metric, "lower_is_better": lower, "energy": joules}
    rows = [record(number, score, **price, **kind) for number, score in enumerate(scores, 1)]
    if rows:
        tested = [score for score in scores if score is not None]
        by_width = {1: {metric: 0.25}, 2: {metric: tested[-1]}} if tested else {}
        rows[-1] = replace(rows[-1], stopped="rounds", scores_by_width=by_width)
    write_records(folder, rows, tail)
    return folder


def write_houses(folder: Path) -> list[Path]:
    """Two strategies nobody has heard of, by RMSE. To 0.6: ours 30 s and 3 MB, theirs 120 s and 24 MB."""
    by: dict[str, Any] = {"metric": "rmse", "lower": True, "experiment": "houses"}
    price = {"seconds": 20.0, "megabytes": 4.0}
    return [
        write_run(folder / "ours", [0.8, 0.5, 0.5, 0.2, 0.2], strategy="ours", **by),
        write_run(folder / "theirs", [0.9, 0.9, 0.9, 0.6, 0.6, 0.45], strategy="theirs", **price, **by),
    ]
