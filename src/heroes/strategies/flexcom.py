"""FlexCom: FedAvg in which each client sends the largest part of its change, a smaller one on slower links.

Of each client's change a share travels, the values of the largest magnitude; what is left out is added to
what it sends next (error feedback). The paper says that compression is chosen for each device by its costs,
guided by a convergence bound; the rest is ours. The error of such uploads grows like 1 / share^2 - 1, and the
cheapest shares with a given mean error are in proportion to c^(-1/3), with c the seconds of a whole upload.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from heroes.messages import Cohort, Floats, Plan, ServerState
from heroes.planning.solving import root
from heroes.strategies.base import WholeModel

Part = Annotated[float, Field(gt=0, le=1)]


class FlexCom(WholeModel):
    """FedAvg with sparse uploads, sparser on slower links, and error feedback."""

    name: Literal["flexcom"] = "flexcom"
    """the strategy"""
    share: Part = 0.1
    """share of a change's values that travels up, if all links were equal"""
    least: Part = 0.01
    """the least share of a client"""
    rule: Literal["bound", "deadline"] = "bound"
    """how shares differ: with the least time on all links for the error that equal shares would have; or so
    that all uploads end together, with the mean share as given
    """

    requires = MappingProxyType({"exchange.error_feedback": True})
    tries = MappingProxyType({"strategy.share": (0.03, 0.3)})
    colour = "#A6D854"
    marker = "d"

    def assign(self, state: ServerState[Any], cohort: Cohort) -> Plan:
        load = self.load(cohort)
        seconds = self.upload_seconds(cohort, load)
        least = min(self.least, self.share)
        shares = (
            by_bound(seconds, self.share, least)
            if self.rule == "bound"
            else by_deadline(seconds, self.tau * load.mu + load.nu - seconds, self.share, least)
        ).tolist()
        load = self.sent_up(cohort, load, [self.ground.up_bits] * len(cohort), shares)
        plan = self.same_tau(state, cohort, load, self.tau)
        given = zip(plan.assignments, shares, strict=True)
        return Plan(tuple(replace(a, up_share=s) for a, s in given), {**plan.facts, "shares": shares})


def by_bound(seconds: Floats, share: float, least: float) -> Floats:
    """Shares in proportion to seconds^(-1/3) whose mean of 1 / share^2 is that of equal shares.

    >>> by_bound(np.array([1.0, 1.0]), 0.25, 0.01).round(6).tolist()
    [0.25, 0.25]
    """

    def shares(scale: float) -> Floats:
        return np.asarray(np.clip(np.exp(scale) * seconds ** (-1 / 3), least, 1.0), dtype=np.float64)

    low = float(np.log(least) + np.log(seconds).min() / 3)  # all have the least, and all have all
    high = float(np.log(seconds).max() / 3)
    return shares(root(lambda scale: 1 / share**2 - float((shares(scale) ** -2).mean()), low, high))


def by_deadline(seconds: Floats, besides: Floats, share: float, least: float) -> Floats:
    """Shares with which uploads of so many seconds end together, after what comes before; in the mean
    `share`.

    >>> by_deadline(np.array([1.0, 4.0]), np.zeros(2), 0.5, 0.01).round(6).tolist()
    [0.8, 0.2]
    """

    def shares(deadline: float) -> Floats:
        return np.clip((deadline - besides) / seconds, least, 1.0)

    most = float((besides + seconds).max())
    return shares(root(lambda deadline: float(shares(deadline).mean()) - share, 0.0, most))
