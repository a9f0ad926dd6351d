"""A progress bar for notebooks: a tracker that draws below the cell in which a run goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from heroes.errors import ConfigError, printable
from heroes.messages import RoundRecord
from heroes.report.metrics import Metric


class Bar:
    """Draws a progress bar in a notebook: the round, the time, the score."""

    def __init__(self) -> None:
        try:
            from IPython.display import display
        except ImportError:
            raise ConfigError("the tracker 'bar' is for notebooks, and IPython is not installed") from None
        self._display = display
        self._shown: Any = None
        self._rounds = 1
        self._name = ""

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        self._rounds = settings["federation.rounds"]
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
        text = " · ".join(said)
        bar = f'<progress value="{number}" max="{self._rounds}"></progress>'
        return {"text/plain": text, "text/html": f"{bar} {escape(text)}"}
