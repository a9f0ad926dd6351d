"""The outcome of comparing runs: measures, and how they are shown as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from heroes.report.measures import Spread
from heroes.report.runs import Group
from heroes.report.tables import Table

MEAN_OF_OTHERS = "mean of the others"
Show = Callable[[float], str]


@dataclass(frozen=True)
class Measure:
    """One number about a group of runs: `what`, in `unit`, `at` a target, a time, a traffic or a width, or
    `against` another.
    """

    label: str
    what: str
    unit: str
    spread: Spread
    at: float | None = None
    against: str = ""

    def as_row(self) -> dict[str, Any]:
        about = {
            "label": self.label,
            "what": self.what,
            "at": self.at,
            "against": self.against,
            "unit": self.unit,
        }
        return about | self.spread.as_json()


@dataclass(frozen=True)
class Comparison:
    """Runs of one task, compared. Times are seconds of the runs' clock, traffic megabytes both ways, accuracy
    from 0 to 1.
    """

    task: str
    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    smooth: int = 1
    notes: tuple[str, ...] = ()
    _index: dict[tuple[str, str, float | None, str], Spread] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {(each.label, each.what, each.at, each.against): each.spread for each in self.measures}
        object.__setattr__(self, "_index", index)

    @property
    def clock(self) -> str:
        """What seconds are: virtual, or wall."""
        return self.groups[0].runs[0].clock

    def find(self, label: str, what: str, at: float | None = None, against: str = "") -> Spread | None:
        """One measure, None where it was not taken."""
        return self._index.get((label, what, at, against))

    def places(self, what: str) -> list[float]:
        """The targets, times, traffic or widths at which a measure was taken."""
        return sorted({each.at for each in self.measures if each.what == what and each.at is not None})

    def rows(self) -> list[dict[str, Any]]:
        """Every measure as one flat row."""
        return [measure.as_row() for measure in self.measures]

    def tables(self) -> list[Table]:
        """The comparison for people, as tables of text."""
        shown = [_overview(self), *(_by_place(self, layout) for layout in _BY_PLACE), _losses(self)]
        shown += [table for layout in _GAINS for table in _gains(self, layout)]
        return [table for table in shown if table.rows]

    def lines(self) -> list[str]:
        """The tables and notes as plain text."""
        blocks = [table.lines() for table in self.tables()]
        return [line for block in blocks for line in [*block, ""]] + [f"note: {note}" for note in self.notes]

    def as_json(self) -> dict[str, Any]:
        groups = [
            {
                "label": group.label,
                "scheme": group.scheme,
                "seeds": list(group.seeds),
                "runs": [str(run.path) for run in group.runs],
            }
            for group in self.groups
        ]
        return {
            "task": self.task,
            "clock": self.clock,
            "smooth": self.smooth,
            "groups": groups,
            "measures": self.rows(),
            "notes": list(self.notes),
        }

    def as_csv(self) -> str:
        """One line per measure, with a header; what was not reached is left empty."""
        text = io.StringIO()
        names = ["label", "what", "at", "against", "unit", "mean", "std", "reached", "of"]
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return text.getvalue()


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _target(value: float) -> str:
    return f"{100 * value:.4g} %"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _rounds(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _two_places(value: float) -> str:
    return f"{value:.2f}"


@dataclass(frozen=True)
class _Layout:
    """How a measure is shown: its title, its values, what a missing one is called, its columns where it has
    places.
    """

    what: str
    title: str
    show: Show
    unit: str = ""
    missing: str = "not reached"
    column: Show = _target
    note: str = ""

    def cell(self, spread: Spread | None) -> str:
        return self.missing if spread is None else spread.text(self.show, self.missing, self.unit)


_NOT_AFTER = "The last evaluation not after; a run that had ended by then is not measured."
_PAIRED = "Runs with the same seed are paired; not reached: one of the two did not get there."
_BY_PLACE = (
    _Layout("seconds to accuracy", "Seconds of {clock} time to reach an accuracy", _number),
    _Layout("traffic to accuracy", "Traffic to reach an accuracy (MB, both ways)", _number),
    _Layout("rounds to accuracy", "Rounds to reach an accuracy", _rounds),
    _Layout(
        "accuracy at seconds",
        "Accuracy after {clock} seconds",
        _percent,
        " %",
        "not measured",
        "{:,.6g} s".format,
        _NOT_AFTER,
    ),
    _Layout(
        "accuracy at traffic",
        "Accuracy after traffic",
        _percent,
        " %",
        "not measured",
        "{:,.6g} MB".format,
        _NOT_AFTER,
    ),
    _Layout(
        "accuracy at width",
        "Accuracy of the final model by width",
        _percent,
        " %",
        "not measured",
        "width {:g}".format,
    ),
)
_OVERVIEW = (
    _Layout("accuracy", "accuracy", _percent, " %", "not measured"),
    _Layout("best accuracy", "best", _percent, " %", "not measured"),
    _Layout("rounds", "rounds", _rounds),
    _Layout("seconds", "{clock} s", _number),
    _Layout("traffic", "traffic MB", _number),
    _Layout("waiting", "waiting s", _two_places),
    _Layout("epsilon", "epsilon", _two_places),  # only where there is one
)
_GAINS = (
    _Layout("speed-up", "Speed-up of {} to reach an accuracy", _two_places, "x", note=_PAIRED),
    _Layout("traffic saved", "Traffic saved by {} to reach an accuracy", _percent, " %", note=_PAIRED),
)


def _overview(found: Comparison) -> Table:
    layouts = [
        layout for layout in _OVERVIEW if any(found.find(group.label, layout.what) for group in found.groups)
    ]
    rows = [
        (
            group.label,
            ", ".join(map(str, group.seeds)),
            *(layout.cell(found.find(group.label, layout.what)) for layout in layouts),
        )
        for group in found.groups
    ]
    several = any(len(group.runs) > 1 for group in found.groups)
    spread = "Mean ± standard deviation over seeds. " if several else ""
    smooth = f"Accuracy is the mean of the last {found.smooth} evaluations. " if found.smooth > 1 else ""
    note = f"{spread}{smooth}Waiting is the mean over rounds and clients."
    titles = [layout.title.format(clock=found.clock) for layout in layouts]
    return Table(f"Runs of {found.task}", ("scheme", "seeds", *titles), tuple(rows), note)


def _by_place(found: Comparison, layout: _Layout) -> Table:
    places = found.places(layout.what)
    rows = [
        (group.label, *(layout.cell(found.find(group.label, layout.what, place)) for place in places))
        for group in found.groups
        if places
    ]
    return Table(
        layout.title.format(clock=found.clock),
        ("scheme", *map(layout.column, places)),
        tuple(rows),
        layout.note,
    )


def _losses(found: Comparison) -> Table:
    """How many updates did not count, by cause."""
    causes = sorted({each.against for each in found.measures if each.what == "lost updates"})
    rows = [
        (
            group.label,
            *(
                "0"
                if (n := found.find(group.label, "lost updates", None, cause)) is None
                else n.text(_rounds)
                for cause in causes
            ),
        )
        for group in found.groups
        if causes
    ]
    note = "Of all clients asked, a round that was begun again included."
    return Table("Updates that did not count, by cause", ("scheme", *causes), tuple(rows), note)


def _gains(found: Comparison, layout: _Layout) -> list[Table]:
    """One table for every Heroes group that others were compared with."""
    rivals: dict[str, dict[str, None]] = {}
    for each in found.measures:
        if each.what == layout.what:
            rivals.setdefault(each.label, {})[each.against] = None
    places = found.places(layout.what)
    return [
        Table(
            layout.title.format(label),
            ("against", *map(_target, places)),
            tuple(
                (other, *(layout.cell(found.find(label, layout.what, place, other)) for place in places))
                for other in others
            ),
            layout.note,
        )
        for label, others in rivals.items()
    ]
