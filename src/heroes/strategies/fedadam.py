"""FedAdam: FedAvg whose server makes a step of Adam from the mean change; see `[optimiser]`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from heroes.strategies.base import WholeModel


class FedAdam(WholeModel):
    """FedAvg whose server steps by Adam."""

    name: Literal["fedadam"] = "fedadam"
    """the strategy"""

    requires = MappingProxyType({"optimiser.name": "adam"})
    tries = MappingProxyType({"optimiser.rate": (0.003, 0.03, 0.1)})
    colour = "#F0E442"
    marker = "s"
