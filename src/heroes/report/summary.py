"""A run in a dozen numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heroes.report.records import Row

MEGABYTE = 1e6


@dataclass(frozen=True)
class Summary:
    """What a run came to. Seconds are those of its clock; accuracy is the complete model's on the test set."""

    rounds: int
    seconds: float
    traffic_bytes: int
    waiting: float | None  # mean over rounds
    round_seconds: float | None  # mean over rounds
    accuracy: float | None  # last measured
    best_accuracy: float | None
    best_round: int | None
    loss: float | None
    accuracy_by_width: dict[int, float]
    counter_variance: float | None
    missing: dict[str, int]  # lost updates by cause
    repeated: int  # attempts at rounds that too few answered
    epsilon: float | None  # privacy spent
    stopped: str | None  # None: the run did not finish
    clock: str = "virtual"  # what seconds are

    @staticmethod
    def of(rows: Sequence[Row]) -> Summary:
        """Sum up the rounds of a run, which may be none."""
        scored = [row for row in rows if row.get("accuracy") is not None]
        best = max(scored, key=lambda row: float(row["accuracy"]), default=None)
        last: Row = rows[-1] if rows else {}
        facts = last.get("facts") or {}
        return Summary(
            rounds=len(rows),
            seconds=float(last.get("seconds", 0.0)),
            traffic_bytes=int(last.get("traffic", 0)),
            waiting=_mean([row["waiting"] for row in rows]),
            round_seconds=_mean([row["duration"] for row in rows]),
            accuracy=scored[-1]["accuracy"] if scored else None,
            best_accuracy=best["accuracy"] if best else None,
            best_round=best["round"] if best else None,
            loss=last.get("loss"),
            accuracy_by_width={int(k): v for k, v in (last.get("accuracy_by_width") or {}).items()},
            counter_variance=facts.get("counter_variance"),
            missing=dict(sum((_lost(row) for row in rows), Counter())),
            repeated=sum(len(row.get("abandoned") or ()) for row in rows),
            epsilon=last.get("epsilon"),
            stopped=last.get("stopped"),
            clock=str(last.get("clock", "virtual")),
        )

    def lines(self) -> list[tuple[str, str]]:
        """The summary as (name, text) for people."""
        ended = {None: "not finished", "rounds": "all rounds done"}.get(
            self.stopped, f"{self.stopped} reached"
        )
        best = (
            f"{percent(self.best_accuracy)} in round {self.best_round}"
            if self.best_accuracy is not None
            else "not measured"
        )
        widths = ", ".join(
            f"{width}: {percent(value)}" for width, value in sorted(self.accuracy_by_width.items())
        )
        lost = ", ".join(f"{count} x {reason}" for reason, count in sorted(self.missing.items()))
        rows = [
            ("accuracy", percent(self.accuracy)),
            ("best accuracy", best),
            ("by width", widths or "not measured"),
            ("rounds", f"{self.rounds} ({ended})"),
            (f"{self.clock} time", f"{self.seconds:,.1f} s ({_seconds(self.round_seconds)} a round)"),
            ("mean waiting", f"{_seconds(self.waiting)} a round"),
            ("traffic", f"{self.traffic_bytes / MEGABYTE:,.2f} MB"),
            ("training loss", "not measured" if self.loss is None else f"{self.loss:.4f}"),
        ]
        sometimes = [
            ("lost updates", lost),
            ("begun again", f"{self.repeated} times, since too few answered" if self.repeated else ""),
            ("privacy spent", "" if self.epsilon is None else f"epsilon {self.epsilon:.2f}"),
        ]
        return [*rows, *((name, text) for name, text in sometimes if text)]

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':<15}{text}" for name, text in self.lines())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _lost(row: Row) -> Counter[str]:
    """Lost updates by cause; by reason in records that name no causes."""
    return (
        Counter(row["lost"])
        if row.get("lost")
        else Counter(str(lost.get("reason")) for lost in row["missing"])
    )


def percent(value: float | None) -> str:
    return "not measured" if value is None else f"{100 * value:.2f} %"


def _seconds(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f} s"


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
