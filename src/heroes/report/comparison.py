"""A comparison of runs: its measures, and how they are shown as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heroes.errors import printable
from heroes.report.latex import document
from heroes.report.layouts import Layout, by_limits, by_targets, by_width, in_the_end, saved, whole_or_tenths
from heroes.report.measures import Spread
from heroes.report.metrics import Metric
from heroes.report.runs import Group, RunData
from heroes.report.tables import Table

# ratios to the reference, and what they are of
SPEED_UP, LESS_TRAFFIC, LESS_ENERGY = "speed-up", "less traffic", "less energy"
RATIOS: Mapping[str, str] = {SPEED_UP: "seconds", LESS_TRAFFIC: "traffic", LESS_ENERGY: "energy"}
BEST, MEAN = "best of the others", "geometric mean"  # what ratios are against, besides single strategies
STUDY = "study"  # the unit of an epsilon that stands for a run with secret noise
_SAMPLED = (
    "Scores in the end are on the whole test set; curves, targets and best are on a sample of it that is the "
    "same for runs with the same seed."
)
_ESTIMATE = "Energy is an estimate: FLOPs and bytes times what one costs on the fleet's devices and links."
_STOPPED = (
    "Runs ended at a target of their own or when time was up: what they came to in the end they came to at "
    "different times."
)
_STUDY = 'Epsilon in a study: the noise comes from the seed; privacy.source = "system" would spend that.'


@dataclass(frozen=True)
class Measure:
    """Something measured of a group of runs, in some unit, one number for each run.

    `at` is the target, time, traffic or width it was measured at; `against` is the group or the cause of loss
    it is about.
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


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs of one experiment, compared.

    Times are in seconds of the runs' clock, traffic is in megabytes both ways, accuracy is from 0 to 1.
    """

    experiment: str
    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    notes: tuple[str, ...] = ()
    _index: dict[tuple[str, str, float | None, str], Spread] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {(each.label, each.what, each.at, each.against): each.spread for each in self.measures}
        object.__setattr__(self, "_index", index)

    @property
    def clock(self) -> str:
        """Whether seconds are virtual or wall time."""
        return self.groups[0].runs[0].clock

    @property
    def metric(self) -> Metric:
        """The main metric of the runs."""
        return self.groups[0].runs[0].metric

    @property
    def targets(self) -> list[float]:
        """The targets, the hardest last."""
        return self.places(f"seconds to {self.metric.name}")

    def find(self, label: str, what: str, at: float | None = None, against: str = "") -> Spread | None:
        """A measure by its name; None if it was not taken.

        Args:
            label: the group, which is a strategy or a variant of one.
            what: what was measured.
            at: the target, time, traffic or width at which it was, if at any.
            against: the group that it is compared with, if with any.
        """
        return self._index.get((label, what, at, against))

    def hardest(self, label: str, what: str, against: str = "") -> tuple[float, Spread] | None:
        """The hardest target at which a measure is known, and what it is there.

        Args:
            label: the group, which is a strategy or a variant of one.
            what: what was measured.
            against: the group that it is compared with, if with any.
        """
        known = ((target, self.find(label, what, target, against)) for target in reversed(self.targets))
        return next(((at, spread) for at, spread in known if spread is not None and spread.reached), None)

    def places(self, what: str) -> list[float]:
        """The targets (the hardest last), times, traffic or widths at which `what` was measured."""
        places = {each.at for each in self.measures if each.what == what and each.at is not None}
        targets = what in RATIOS or what.endswith(f" to {self.metric.name}")
        return sorted(places, reverse=targets and self.metric.lower_is_better)

    def rows(self) -> list[dict[str, Any]]:
        """Every measure as one flat row."""
        return [measure.as_row() for measure in self.measures]

    def leading(self) -> list[Table]:
        """What matters most: the ratios to the other strategies, and what the runs came to."""
        ratios = [table for layout in saved(self.metric) for table in _gains(self, layout)]
        return [*(table for table in ratios if table.rows), _overview(self)]

    def details(self) -> list[Table]:
        """The numbers behind that."""
        placed = [*by_targets(self.metric, self.clock), *by_limits(self.metric, self.clock)]
        shown = [*(_by_place(self, layout) for layout in placed), _by_width(self), _losses(self)]
        return [table for table in shown if table.rows]

    def tables(self) -> list[Table]:
        """The comparison for people, as tables of text."""
        return [*self.leading(), *self.details()]

    def lines(self) -> list[str]:
        """The tables and notes as plain text."""
        blocks = [table.lines() for table in self.tables()]
        return [line for block in blocks for line in [*block, ""]] + [
            printable(f"note: {note}") for note in self.notes
        ]

    def __repr__(self) -> str:
        labels = ", ".join(group.label for group in self.groups)
        return printable(f"<Comparison: {self.experiment}, {labels}>", 300)

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.leading())

    def latex(self) -> str:
        """The tables as LaTeX."""
        return document(self.tables(), self.notes)

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
            "experiment": self.experiment,
            "clock": self.clock,
            "metric": self.metric.name,
            "lower_is_better": self.metric.lower_is_better,
            "groups": groups,
            "measures": self.rows(),
            "notes": list(self.notes),
        }

    def as_csv(self) -> str:
        """One line for each measure, below a header; the mean of a target nobody reached is left empty."""
        text = io.StringIO()
        names = ["label", "what", "at", "against", "unit", "mean", "std", "low", "high", "reached", "of"]
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
            *(_in_the_end(found, group, layout) for layout in layouts),
        )
        for group in found.groups
    ]
    several = any(len(group.runs) > 1 for group in found.groups)
    runs = [run for group in found.groups for run in group.runs]
    said = [
        ("Mean ± standard deviation over seeds.", several),
        ("Waiting is the mean over rounds and clients.", True),
        (_STOPPED, len({run.rows[-1].stopped for run in runs}) > 1 or _by_target(runs)),
        (_SAMPLED, any(run.sampled for run in runs)),
        (_ESTIMATE, "energy" in known),
        (_STUDY, any(each.unit == STUDY for each in found.measures)),
    ]
    note = " ".join(text for text, applies in said if applies)
    titles = [layout.title for layout in layouts]
    return Table(f"Runs of {found.experiment}", ("strategy", "seeds", *titles), tuple(rows), note)


def _by_target(runs: Sequence[RunData]) -> bool:
    return any(str(run.rows[-1].stopped).startswith("target") for run in runs)


def _in_the_end(found: Comparison, group: Group, layout: Layout) -> str:
    text = layout.cell(found.find(group.label, layout.what))
    study = any(each.unit == STUDY and each.label == group.label for each in found.measures)
    return f"{text} ({STUDY})" if layout.what == "epsilon" and study else text


def _by_place(found: Comparison, layout: Layout) -> Table:
    places = found.places(layout.what)
    rows = [
        (group.label, *(layout.cell(found.find(group.label, layout.what, place)) for place in places))
        for group in found.groups
        if places
    ]
    return Table(layout.title, ("strategy", *map(layout.column, places)), tuple(rows), layout.note)


def _by_width(found: Comparison) -> Table:
    """How good the final model is at every width, and which widths no client trained."""
    layout, untrained = by_width(found.metric)
    places = sorted({*found.places(layout.what), *found.places(untrained.what)})

    def cell(label: str, width: float) -> str:
        trained, other = (found.find(label, each.what, width) for each in (layout, untrained))
        if trained is None or other is None:
            return layout.cell(trained)
        cut = f"untrained ({other.text(untrained.show, unit=untrained.unit)})"
        return cut if trained.mean is None else trained.text(layout.show, "untrained", layout.unit)

    rows = [
        (group.label, *(cell(group.label, width) for width in places)) for group in found.groups if places
    ]
    note = untrained.note if found.places(untrained.what) else ""
    return Table(layout.title, ("strategy", *map(layout.column, places)), tuple(rows), note)


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
    note = "Out of all updates asked for, including those of rounds that were begun again."
    return Table("Updates that did not count, by cause", ("strategy", *causes), tuple(rows), note)


def _gains(found: Comparison, layout: Layout) -> list[Table]:
    """A table of ratios for every group that others are compared with."""
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
