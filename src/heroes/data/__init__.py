"""Data: labelled examples in memory, and how they are shared out over the clients."""

from __future__ import annotations

from collections.abc import Callable

from heroes.data.digits import load_digits
from heroes.data.examples import Examples, FederatedData, Shares, from_dataset
from heroes.data.partitions import PARTITIONS, share_out

DATASETS: dict[str, Callable[[], tuple[Examples, Examples]]] = {"digits": load_digits}

__all__ = ["DATASETS", "PARTITIONS", "Examples", "FederatedData", "Shares", "from_dataset", "load_digits", "share_out"]
