"""A run, summed up in about a dozen numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from heroes.errors import HeroesError, printable
from heroes.messages import RoundRecord
from heroes.report.metrics import Metric
from heroes.report.tables import pairs_html
from heroes.settings.config import parse_kept

MEGABYTE = 1e6


@dataclass(frozen=True, repr=False)
class Summary:
    """What a run came to. Seconds are those of its clock; scores are of the complete model on test data.

    `score` is by the main metric.
    """

    rounds: int
    seconds: float
    traffic_bytes: int
    waiting: float | None  # mean over rounds
    round_seconds: float | None  # mean over rounds
    metric: str
    lower_is_better: bool
    score: float | None  # of the last test, on the whole test set if the run is finished
    best_score: float | None  # of all tests
    best_round: int | None
    scores: dict[str, float]  # like `score`, by every metric
    score_by_width: dict[int, float]  # at the end of the run
    untrained: tuple[int, ...]  # the widths of these that no client ever trained
    loss: float | None
    counter_variance: float | None
    missing: dict[str, int]  # lost updates by cause
    repeated: int  # attempts at rounds that too few clients answered
    epsilon: float | None  # privacy spent; only a study's if `noise` comes from the seed
    stopped: str | None  # why the run ended; None: it is not finished
    clock: str = "virtual"  # or wall: which time seconds are
    noise: str | None = None
    energy: float | None = None  # joules of all clients, estimated; None: not known

    @staticmethod
    def of(rows: Sequence[RoundRecord], narrower: bool = False) -> Summary:
        """Sum up `rows`, the rounds of a run, if any; `narrower`: clients train narrower parts as well."""
        metric = Metric.of(rows)
        scored = [row for row in rows if metric.name in row.scores]
        best = metric.best([row.scores[metric.name] for row in scored])
        last = rows[-1] if rows else _NOTHING
        return Summary(
            rounds=len(rows),
            seconds=last.seconds,
            traffic_bytes=last.traffic,
            waiting=_mean([row.waiting for row in rows]),
            round_seconds=_mean([row.duration for row in rows]),
            metric=metric.name,
            lower_is_better=metric.lower_is_better,
            score=final_score(rows),
            best_score=best,
            best_round=next((row.round for row in scored if row.scores[metric.name] == best), None),
            scores=dict(scored[-1].final_scores) if scored else {},
            score_by_width=last.score_by_width,
            untrained=untrained(rows, narrower),
            loss=last.loss,
            counter_variance=_number(last.facts.get("counter_variance")),
            missing=dict(sum((_lost(row) for row in rows), Counter())),
            repeated=sum(len(row.abandoned) for row in rows),
            epsilon=last.epsilon,
            stopped=last.stopped,
            clock=last.clock,
            noise=last.noise,
            energy=spent_joules(rows)[-1] if rows else None,
        )

    @property
    def accuracy(self) -> float | None:
        """The accuracy at the last test; None if the run does not measure it."""
        return self.scores.get("accuracy")

    def lines(self) -> list[tuple[str, str]]:
        """The summary as (name, text) for people."""
        ended = _ended(self.stopped)
        metric = Metric(self.metric, self.lower_is_better)
        best = metric.text(self.best_score) + (
            "" if self.best_round is None else f" in round {self.best_round}"
        )
        shown = {width: metric.text(value) for width, value in sorted(self.score_by_width.items())}
        shown |= {width: f"untrained ({shown[width]})" for width in self.untrained if width in shown}
        widths = ", ".join(f"{width}: {text}" for width, text in shown.items())
        others = {
            name: Metric(name).text(value) for name, value in self.scores.items() if name != self.metric
        }
        lost = ", ".join(f"{count} x {reason}" for reason, count in sorted(self.missing.items()))
        rows = [
            (metric.label, metric.text(self.score)),
            (f"best {self.metric}", best),
            *((Metric(name).label, text) for name, text in others.items()),
            ("by width", widths or "not measured"),
            ("rounds", f"{self.rounds} ({ended})"),
            (f"{self.clock} time", f"{self.seconds:,.1f} s{_each(self.round_seconds)}"),
            ("mean waiting", "not measured" if self.waiting is None else f"{self.waiting:.2f} s a round"),
            ("traffic", f"{self.traffic_bytes / MEGABYTE:,.2f} MB"),
            ("training loss", "not measured" if self.loss is None else f"{self.loss:.4f}"),
        ]
        sometimes = [
            ("energy", "" if self.energy is None else f"{self.energy:,.1f} J (estimated)"),
            ("lost updates", lost),
            ("begun again", f"{self.repeated} times, since too few answered" if self.repeated else ""),
            ("privacy spent", self._spent()),
        ]
        return [*rows, *((name, text) for name, text in sometimes if text)]

    def _spent(self) -> str:
        if self.epsilon is None:
            return ""
        study = "" if self.noise == "system" else ' in a study; privacy.source = "system" would spend that'
        return f"epsilon {self.epsilon:.2f}{study}"

    def __repr__(self) -> str:
        score = f"{self.metric} {Metric(self.metric).text(self.score)}"
        spent = f"{self.seconds:,.1f} s, {self.traffic_bytes / MEGABYTE:,.2f} MB"
        return printable(f"<Summary: {self.rounds} rounds, {score}, {spent}>", 300)

    def __str__(self) -> str:
        return "\n".join(printable(f"{name + ':':<15}{text}") for name, text in self.lines())

    def _repr_html_(self) -> str:
        return pairs_html(self.lines())

    def as_json(self) -> dict[str, Any]:
        """As plain values. If accuracy is the main metric, the scores have that name as well."""
        values = asdict(self)
        if self.metric == "accuracy":
            values["accuracy"] = self.score
            values["best_accuracy"] = self.best_score
            values["accuracy_by_width"] = dict(self.score_by_width)
        return values


_NOTHING = RoundRecord(0, 0.0, 0.0, 0.0, 0, 0, 0, 0.0, None, (), ())


def spent_joules(rows: Sequence[RoundRecord]) -> list[float | None]:
    """What clients had used by the end of every round; None from the first round on that does not say."""
    return list(accumulate((row.energy for row in rows), _more))


def _more(before: float | None, energy: float | None) -> float | None:
    return None if before is None or energy is None else before + energy


def final_score(rows: Sequence[RoundRecord]) -> float | None:
    """The main metric at the last test; None if there was no test."""
    name = Metric.of(rows).name
    scored = [row for row in rows if name in row.scores]
    return scored[-1].final_scores.get(name) if scored else None


def trains_narrower(config: Mapping[str, Any]) -> bool:
    """Whether clients under these settings train narrower parts of what they hold as well."""
    try:
        return parse_kept(config).strategy.duties(0).any_width > 0
    except HeroesError:  # a strategy that is not installed here
        return False


def untrained(rows: Sequence[RoundRecord], narrower: bool = False) -> tuple[int, ...]:
    """The widths that the final model was tested at and that no client trained, as all or as a part of its
    own.
    """
    trained = {client.width for row in rows for client in row.clients}
    if narrower and trained:
        trained |= set(range(1, max(trained)))
    tested = rows[-1].scores_by_width if rows else {}
    return tuple(sorted(set(tested) - trained)) if trained else ()


def _lost(row: RoundRecord) -> Counter[str]:
    """Lost updates by cause; by reason in old records, which have no causes."""
    return Counter(row.lost) if row.lost else Counter(lost.reason for lost in row.missing)


def _number(value: object) -> float | None:
    """A fact that a strategy recorded, if it is a number."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _each(seconds: float | None) -> str:
    return "" if seconds is None else f" ({seconds:.2f} s a round)"


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _ended(stopped: str | None) -> str:
    """Why a run ended, for people.

    >>> _ended("time budget"), _ended("no better for 5 tests")
    ('time budget reached', 'no better for 5 tests')
    """
    if stopped is None or stopped == "rounds":
        return "not finished" if stopped is None else "all rounds done"
    return stopped if stopped.startswith("no better") else f"{stopped} reached"
