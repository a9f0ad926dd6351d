"""The main metric of a run: its name, whether lower is better, and how its values are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heroes.messages import SHARES, RoundRecord, reaches

_TAKEN = ("rounds", "seconds", "traffic", "waiting", "epsilon", "energy")  # names of other measures


@dataclass(frozen=True)
class Metric:
    """The metric that curves, tables and targets go by."""

    name: str = "accuracy"
    lower_is_better: bool = False

    @staticmethod
    def of(rows: Sequence[RoundRecord]) -> Metric:
        """The main metric of a run, as the last round with a test names it.

        Rounds without a test do not name it, and a resumed run may have changed it.
        """
        if not rows:
            return Metric()
        last = next((row for row in reversed(rows) if row.scores), rows[-1])
        return Metric(last.metric, last.lower_is_better)

    @property
    def label(self) -> str:
        """The name in a list of measures, where it must not be mistaken for another one.

        >>> Metric("rmse", lower_is_better=True).label, Metric("seconds").label
        ('rmse', 'metric seconds')
        """
        return f"metric {self.name}" if self.name in _TAKEN else self.name

    @property
    def file_name(self) -> str:
        """The name as a part of a file's name.

        >>> Metric("top 5/all").file_name
        'top-5-all'
        """
        return re.sub(r"[^A-Za-z0-9_-]+", "-", self.name).strip("-") or "metric"

    @property
    def share(self) -> bool:
        """Whether values are shares from 0 to 1."""
        return self.name in SHARES

    @property
    def scale(self) -> float:
        """The factor from a value to what is shown: 100 for percent."""
        return 100.0 if self.share else 1.0

    @property
    def unit(self) -> str:
        return " %" if self.share else ""

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"test {self.name} (%)" if self.share else f"test {self.name}"

    def short(self, value: float) -> str:
        """A value without its unit, for a table.

        >>> Metric().short(0.5), Metric("rmse").short(0.123456), Metric("perplexity").short(1234.5)
        ('50.0', '0.1235', '1,234')
        """
        return f"{100 * value:.1f}" if self.share else _plain(value)

    def text(self, value: float | None) -> str:
        """A value for people.

        >>> Metric().text(0.875), Metric("rmse").text(0.25), Metric("rmse").text(None)
        ('87.50 %', '0.25', 'not measured')
        """
        if value is None:
            return "not measured"
        return f"{100 * value:.2f} %" if self.share else _plain(value)

    def target(self, value: float) -> str:
        """A target, with all its digits.

        >>> Metric().target(0.8), Metric("rmse").target(0.3)
        ('80 %', '0.3')
        """
        return f"{self.scale * value:,.4g}{self.unit}" if self.share else f"{value:,.6g}"

    def reaches(self, value: float, target: float) -> bool:
        return reaches(value, target, self.lower_is_better)

    def best(self, values: Sequence[float]) -> float | None:
        """The best of these values; None if there are none."""
        return (min if self.lower_is_better else max)(values, default=None)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
