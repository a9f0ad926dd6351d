"""FedAvg: everyone trains the whole dense model for the same number of steps; the new model is the mean."""

from __future__ import annotations

from typing import Literal

from heroes.strategies.base import WholeModel


class FedAvg(WholeModel):
    """Federated averaging of the dense model."""

    name: Literal["fedavg"] = "fedavg"
    """the strategy"""

    colour = "#D55E00"
    marker = "s"
