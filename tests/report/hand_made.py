"""Records made by hand, with numbers that can be followed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heroes.messages import ClientRecord, RoundRecord, plain

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
        samples=None,
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
