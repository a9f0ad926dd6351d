"""A run at the end of a round, as callbacks get it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from heroes.messages import RoundRecord
from heroes.runs.served import Served


@dataclass(frozen=True)
class Moment:
    """A run at the end of a round: what happened in it, and the model as it was then."""

    record: RoundRecord
    served: Served = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)  # the configuration, with dotted names
    folder: Path | None = None  # the run folder, if there is one

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths at which the model can be had, narrowest first."""
        return self.served.widths

    def model(self, width: int | None = None) -> nn.Module:
        """The model at `width`, by default the complete one: a plain module of your own, ready to use."""
        return self.served.module(width)
