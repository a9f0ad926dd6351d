"""Oort: FedAvg with clients chosen by how much the model learns from them and how quick they are.

`heroes.planning.oort` has the choice itself, which `federation.sampler = "oort"` gives any strategy.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from heroes.fields import NotNegative, Share, Whole
from heroes.planning.oort import Oort
from heroes.strategies.base import WholeModel

if TYPE_CHECKING:
    from heroes.contracts import Sampler

Percentile = Annotated[float, Field(gt=0, le=100)]


class OortFedAvg(WholeModel):
    """FedAvg with clients chosen by statistical utility and speed."""

    name: Literal["oort"] = "oort"
    """the strategy"""
    exploration: Share = Oort.exploration
    """share of a cohort that goes to clients never seen, in the first round"""
    exploration_decay: Share = Oort.exploration_decay
    """factor on that share after every round"""
    exploration_least: Share = Oort.exploration_least
    """what the share does not fall below"""
    clip: Share = Oort.clip
    """quantile of utilities above which more does not count"""
    cutoff: Share = Oort.cutoff
    """how near to the score of the last place, relative to it, a client's score must be to be drawn"""
    penalty: NotNegative = Oort.penalty
    """alpha: how much slow clients are held back; 0 is not at all"""
    percentile: Percentile = Oort.percentile
    """percentile of what seen clients take above which one is slow, at first"""
    pacer_step: Annotated[float, Field(ge=0, le=100)] = Oort.pacer_step
    """by how much the pacer moves that percentile"""
    pacer_rounds: Whole = Oort.pacer_rounds
    """rounds whose utility the pacer compares with those of as many rounds before"""

    requires = MappingProxyType({"federation.sampler": "oort"})
    tries = MappingProxyType({"strategy.penalty": (0.5, 5.0)})
    colour = "#999933"
    marker = "*"

    def sampler(self) -> Sampler:
        return Oort(**self.model_dump(exclude={"name", "tau"}))
