"""The outcome of comparing runs: measures, and how they are shown as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from heroes.errors import printable
from heroes.report.layouts import Layout, by_limits, by_targets, in_the_end, saved, whole_or_tenths
from heroes.report.measures import Spread
from heroes.report.metrics import Metric
from heroes.report.runs import Group
from heroes.report.tables import Table

MEAN_OF_OTHERS = "mean of the others"
GAINS = ("speed-up", "traffic saved")


@dataclass(frozen=True)
class Measure:
    """One number about a group of runs: `what`, in `unit`, `at` some place or `against` another group.

    A place is a target, a time, a traffic or a width.
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
    """Runs of one experiment, compared.

    Times are seconds of the runs' clock, traffic is megabytes both ways, accuracy is from 0 to 1.
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

    @property
    def metric(self) -> Metric:
        """What the runs are compared by."""
        return self.groups[0].runs[0].metric

    @property
    def targets(self) -> list[float]:
        """The values of the metric that were to be reached, the hardest last."""
        return self.places(f"seconds to {self.metric.name}")

    def find(self, label: str, what: str, at: float | None = None, against: str = "") -> Spread | None:
        """One measure, None if it was not taken."""
        return self._index.get((label, what, at, against))

    def places(self, what: str) -> list[float]:
        """The targets, times, traffic or widths at which a measure was taken; of targets the hardest last."""
        places = {each.at for each in self.measures if each.what == what and each.at is not None}
        targets = what in GAINS or what.endswith(f" to {self.metric.name}")
        return sorted(places, reverse=targets and self.metric.lower_is_better)

    def rows(self) -> list[dict[str, Any]]:
        """Every measure as one flat row."""
        return [measure.as_row() for measure in self.measures]

    def tables(self) -> list[Table]:
        """The comparison for people, as tables of text."""
        placed = [*by_targets(self.metric, self.clock), *by_limits(self.metric, self.clock)]
        shown = [_overview(self), *(_by_place(self, layout) for layout in placed), _losses(self)]
        shown += [table for layout in saved(self.metric) for table in _gains(self, layout)]
        return [table for table in shown if table.rows]

    def lines(self) -> list[str]:
        """The tables and notes as plain text."""
        blocks = [table.lines() for table in self.tables()]
        return [line for block in blocks for line in [*block, ""]] + [
            printable(f"note: {note}") for note in self.notes
        ]

    def as_json(self) -> dict[str, Any]:
        groups = [
            {
                "label": group.label,
                "strategy": group.strategy,
                "seeds": list(group.seeds),
                "runs": [str(run.path) for run in group.runs],
            }
            for group in self.groups
        ]
        return {
            "task": self.task,
            "clock": self.clock,
            "metric": self.metric.name,
            "lower_is_better": self.metric.lower_is_better,
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


def _overview(found: Comparison) -> Table:
    known = {each.what for each in found.measures}
    layouts = [layout for layout in in_the_end(found.metric, found.clock) if layout.what in known]
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
    smooth = f"Scores are means of the last {found.smooth} evaluations. " if found.smooth > 1 else ""
    note = f"{spread}{smooth}Waiting is the mean over rounds and clients."
    titles = [layout.title for layout in layouts]
    return Table(f"Runs of {found.task}", ("strategy", "seeds", *titles), tuple(rows), note)


def _by_place(found: Comparison, layout: Layout) -> Table:
    places = found.places(layout.what)
    rows = [
        (group.label, *(layout.cell(found.find(group.label, layout.what, place)) for place in places))
        for group in found.groups
        if places
    ]
    return Table(layout.title, ("strategy", *map(layout.column, places)), tuple(rows), layout.note)


def _losses(found: Comparison) -> Table:
    """How many updates did not count, by cause."""
    causes = sorted({each.against for each in found.measures if each.what == "lost updates"})
    rows = [
        (
            group.label,
            *(
                "0"
                if (n := found.find(group.label, "lost updates", None, cause)) is None
                else n.text(whole_or_tenths)
                for cause in causes
            ),
        )
        for group in found.groups
        if causes
    ]
    note = "Of all clients asked, a round that was begun again included."
    return Table("Updates that did not count, by cause", ("strategy", *causes), tuple(rows), note)


def _gains(found: Comparison, layout: Layout) -> list[Table]:
    """One table for every group that others were compared with."""
    rivals: dict[str, dict[str, None]] = {}
    for each in found.measures:
        if each.what == layout.what:
            rivals.setdefault(each.label, {})[each.against] = None
    places = found.places(layout.what)
    return [
        Table(
            layout.title.replace("{}", label, 1),
            ("against", *map(layout.column, places)),
            tuple(
                (other, *(layout.cell(found.find(label, layout.what, place, other)) for place in places))
                for other in others
            ),
            layout.note,
        )
        for label, others in rivals.items()
    ]
