"""How the measures of a comparison are shown in tables, by the metric that they go by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heroes.report.measures import Spread
from heroes.report.metrics import Metric

Show = Callable[[float], str]


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def whole_or_tenths(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _two_places(value: float) -> str:
    return f"{value:.2f}"


@dataclass(frozen=True)
class Layout:
    """How a measure is shown: title, values, what a missing one is called, and columns for its places."""

    what: str
    title: str
    show: Show
    unit: str = ""
    missing: str = "not reached"
    column: Show = _number
    note: str = ""

    def cell(self, spread: Spread | None) -> str:
        return self.missing if spread is None else spread.text(self.show, self.missing, self.unit)


_NOT_AFTER = "The last evaluation not after; a run that had ended by then is not measured."
_PAIRED = "Runs with the same seed are paired; not reached: one of the two did not get there."


def by_targets(metric: Metric, clock: str) -> list[Layout]:
    """What it took to reach targets."""
    to, reach, column = f"to {metric.name}", f"to reach a target {metric.name}", metric.target
    return [
        Layout(f"seconds {to}", f"Seconds of {clock} time {reach}", _number, column=column),
        Layout(f"traffic {to}", f"Traffic {reach} (MB, both ways)", _number, column=column),
        Layout(f"rounds {to}", f"Rounds {reach}", whole_or_tenths, column=column),
    ]


def by_limits(metric: Metric, clock: str) -> list[Layout]:
    """How good models were by some time or traffic, and at every width."""
    shown = (metric.short, metric.unit, "not measured")
    at, test = f"{metric.name} at", f"Test {metric.name}"
    return [
        Layout(f"{at} seconds", f"{test} after {clock} seconds", *shown, "{:,.6g} s".format, _NOT_AFTER),
        Layout(f"{at} traffic", f"{test} after traffic", *shown, "{:,.6g} MB".format, _NOT_AFTER),
        Layout(f"{at} width", f"{test} of the final model by width", *shown, "width {:g}".format),
    ]


def in_the_end(metric: Metric, clock: str) -> list[Layout]:
    """What runs came to."""
    shown = (metric.short, metric.unit, "not measured")
    return [
        Layout(metric.label, metric.name, *shown),
        Layout(f"best {metric.name}", "best", *shown),
        Layout("rounds", "rounds", whole_or_tenths),
        Layout("seconds", f"{clock} s", _number),
        Layout("traffic", "traffic MB", _number),
        Layout("waiting", "waiting s", _two_places),
        Layout("epsilon", "epsilon", _two_places),  # only where there is one
    ]


def saved(metric: Metric) -> list[Layout]:
    """What one group, whose label is to stand for `{}`, saved against others."""
    reach, column = f"to reach a target {metric.name}", metric.target
    return [
        Layout("speed-up", f"Speed-up of {{}} {reach}", _two_places, "x", column=column, note=_PAIRED),
        Layout(
            "traffic saved", f"Traffic saved by {{}} {reach}", _percent, " %", column=column, note=_PAIRED
        ),
    ]
