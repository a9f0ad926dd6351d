"""How each measure of a comparison is shown in a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heroes.messages import TESTS
from heroes.report.measures import Spread, ratio
from heroes.report.metrics import Metric

Show = Callable[[float], str]


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def whole_or_tenths(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _two_places(value: float) -> str:
    return f"{value:.2f}"


@dataclass(frozen=True)
class Layout:
    """How a measure is shown: the title of its table, its values, what stands for a missing one, and the
    columns for the targets, times, traffic or widths it was measured at.
    """

    what: str
    title: str
    show: Show
    unit: str = ""
    missing: str = "not reached"
    column: Show = _number
    note: str = ""
    unknown: str = ""
    """what stands where nothing at all was measured, if that is not `missing`"""

    def cell(self, spread: Spread | None) -> str:
        if spread is None:
            return self.unknown or self.missing
        return spread.text(self.show, self.missing, self.unit)


_LAST = "By the last test up to then. Not measured: the run had ended by then, or had not been tested yet."
_REACHED = (
    f"Reached: the mean of the last {TESTS} tests is at the target or better; what the rounds up to the last "
    "of them took."
)
_RATIOS = (
    "Ratios of runs with the same seed: their geometric mean, and their range. Not reached: one of the two "
    "runs did not get there. The best got there with most seeds, and of those with the lowest ratio."
)
_UNKNOWN = "not known"
_UNTRAINED = "Untrained: no client of the run ever trained this width; in brackets what its cut scores."


def by_targets(metric: Metric, clock: str) -> list[Layout]:
    """What it took to reach the targets."""
    to, reach, column = f"to {metric.name}", f"to reach a target {metric.name}", metric.target
    return [
        Layout(f"seconds {to}", f"Seconds of {clock} time {reach}", _number, column=column, note=_REACHED),
        Layout(f"traffic {to}", f"Traffic {reach} (MB, both ways)", _number, column=column),
        Layout(f"energy {to}", f"Energy {reach} (J, estimated)", _number, column=column, unknown=_UNKNOWN),
        Layout(f"rounds {to}", f"Rounds {reach}", whole_or_tenths, column=column),
    ]


def by_limits(metric: Metric, clock: str) -> list[Layout]:
    """How good the models were by some time or traffic."""
    shown = (metric.short, metric.unit, "not measured")
    at, test = f"{metric.name} at", f"Test {metric.name}"
    return [
        Layout(f"{at} seconds", f"{test} after {clock} seconds", *shown, "{:,.6g} s".format, _LAST),
        Layout(f"{at} traffic", f"{test} after traffic", *shown, "{:,.6g} MB".format, _LAST),
    ]


def by_width(metric: Metric) -> tuple[Layout, Layout]:
    """How good the final model is at widths that clients trained, and at those that none did."""
    shown = (metric.short, metric.unit, "not measured")
    title, column = f"Test {metric.name} of the final model by width", "width {:g}".format
    return (
        Layout(f"{metric.name} at width", title, *shown, column),
        Layout(f"{metric.name} at untrained width", title, *shown, column, _UNTRAINED),
    )


def in_the_end(metric: Metric, clock: str) -> list[Layout]:
    """What the runs came to."""
    shown = (metric.short, metric.unit, "not measured")
    return [
        Layout(metric.label, metric.name, *shown),
        Layout(f"best {metric.name}", "best", *shown),
        Layout("rounds", "rounds", whole_or_tenths),
        Layout("seconds", f"{clock} s", _number),
        Layout("traffic", "traffic MB", _number),
        Layout("energy", "energy J", _number, missing=_UNKNOWN),  # only if some run has one, like epsilon
        Layout("waiting", "waiting s", _two_places),
        Layout("epsilon", "epsilon", _two_places),  # only if some run has one
    ]


def saved(metric: Metric) -> list[Layout]:
    """The ratios to other groups; `{}` stands for the group that they are compared with."""
    reach, column = f"to reach a target {metric.name}", metric.target
    return [
        Layout("speed-up", f"Speed-up of {{}} {reach}", ratio, "x", column=column, note=_RATIOS),
        Layout("less traffic", f"How many times less traffic {{}} needs {reach}", ratio, "x", column=column),
        Layout("less energy", f"How many times less energy {{}} needs {reach}", ratio, "x", column=column),
    ]
