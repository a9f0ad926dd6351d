"""FedAvgM: FedAvg whose server moves the model by a momentum of the mean changes; see `[optimiser]`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from heroes.strategies.base import WholeModel


class FedAvgM(WholeModel):
    """FedAvg whose server steps with momentum."""

    name: Literal["fedavgm"] = "fedavgm"
    """the strategy"""

    requires = MappingProxyType({"optimiser.name": "momentum"})
    tries = MappingProxyType({"optimiser.rate": (0.3, 1.0), "optimiser.momentum": (0.5, 0.9)})
    colour = "#8C2D04"
    marker = "P"
