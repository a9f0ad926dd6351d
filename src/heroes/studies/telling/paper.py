"""What the paper says in numbers, as `paper.toml` has it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from heroes.settings import toml_text

_FILE = Path(__file__).parent.with_name("paper.toml")


class Point(BaseModel):
    """One number of the paper for several strategies, and where our runs have the same."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: str
    where: str
    plan: str
    variants: tuple[str, ...] = ()
    kind: Literal["seconds", "traffic", "waiting", "score", "score at seconds", "score at traffic"]
    target: float | None = None
    share: float = 1.0
    values: dict[str, float] = {}
    gains: dict[str, float] = {}
    saved: dict[str, float] = {}
    differs: str = ""

    @property
    def higher_is_better(self) -> bool:
        """Scores: gains are differences; everything else: they are ratios."""
        return self.kind.startswith("score")

    @property
    def ours(self) -> str:
        """The row that the others are compared with."""
        return next(iter(self.values), "Heroes")

    @property
    def rivals(self) -> dict[str, float]:
        """How much better it is than each other row, by the paper.

        >>> values = {"Heroes": 2.0, "FedAvg": 5.0}
        >>> Point(claim="", where="", plan="", kind="waiting", values=values).rivals
        {'FedAvg': 2.5}
        """
        if self.saved:
            return {name: 1 / (1 - share) for name, share in self.saved.items()}
        if self.gains:
            return self.gains
        own, *_ = self.values.values()
        others = list(self.values.items())[1:]
        return {name: own - value if self.higher_is_better else value / own for name, value in others}


class Said(BaseModel):
    """What the paper says about all of its experiments together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    speed_up: float
    saved: float
    saved_where: str
    differs: str
    fastest_to_slowest: float
    idle: float
    idle_where: str


class Paper(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    points: tuple[Point, ...]
    said: Said


@cache
def paper() -> Paper:
    """The file, read."""
    return Paper.model_validate(toml_text.read(_FILE))
