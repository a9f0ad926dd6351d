"""FedYogi: FedAvg whose server makes a step of Yogi from the mean change; see `[optimiser]`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from heroes.strategies.base import WholeModel


class FedYogi(WholeModel):
    """FedAvg whose server steps by Yogi."""

    name: Literal["fedyogi"] = "fedyogi"
    """the strategy"""

    requires = MappingProxyType({"optimiser.name": "yogi"})
    tries = MappingProxyType({"optimiser.rate": (0.003, 0.03, 0.1)})
    colour = "#F0027F"
    marker = "s"
