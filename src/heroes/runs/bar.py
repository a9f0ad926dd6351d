"""A progress bar for notebooks: a tracker that draws below the cell in which a run goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from heroes.errors import ConfigError, printable
from heroes.messages import RoundRecord
from heroes.report.metrics import Metric
from heroes.report.summary import MEGABYTE


class Bar:
    """Draws a progress bar in a notebook: how near the first limit is, the round, the time, the score."""

    def __init__(self) -> None:
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            raise ConfigError("the tracker 'bar' is for notebooks, and IPython is not installed") from None
        if get_ipython() is None:
            raise ConfigError(
                "the tracker 'bar' is for notebooks, and this is none; a terminal has its own bar"
            )
        self._display = display
        self._shown: Any = None
        self._rounds = 1
        self._seconds: float | None = None
        self._megabytes: float | None = None
        self._name = ""

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        self._rounds = settings["federation.rounds"]
        self._seconds = settings["federation.time_budget"]
        self._megabytes = settings["federation.traffic_budget"]
        self._name = f"{settings['experiment']}, {settings['strategy.name']}"
        self._shown = self._display(self._drawn(done[-1] if done else None), raw=True, display_id=True)

    def round(self, record: RoundRecord) -> None:
        self._shown.update(self._drawn(record), raw=True)

    def end(self) -> None:
        """The bar stays as it is."""

    def _drawn(self, record: RoundRecord | None) -> dict[str, str]:
        number = 0 if record is None else record.round
        said = [printable(self._name), f"round {number} of {self._rounds}"]
        if record is not None:
            said += [f"{record.clock} time {record.seconds:,.1f} s"]
            if record.score is not None:
                said += [printable(f"{record.metric} {Metric(record.metric).text(record.score)}")]
            if record.stopped and record.round < self._rounds:
                said += [f"ended: {record.stopped}"]
        text = " · ".join(said)
        bar = f'<progress value="{self._share(record):.3f}" max="1"></progress>'
        return {"text/plain": text, "text/html": f"{bar} {escape(text)}"}

    def _share(self, record: RoundRecord | None) -> float:
        """How much of the run is done, by the limit that is nearest."""
        if record is None or record.stopped:
            return float(record is not None)
        shares = [record.round / self._rounds]
        if self._seconds is not None:
            shares.append(record.seconds / self._seconds)
        if self._megabytes is not None:
            shares.append(record.traffic / (self._megabytes * MEGABYTE))
        return min(1.0, max(shares))
