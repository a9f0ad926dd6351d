"""Clients on nodes of Flower: in its simulation on this machine, or wherever a SuperLink has nodes.

The server side (`engine`) sends tasks over Flower's `Grid` (`grids`), the client side (`client`) is an app
with three answers: who it is, a trained task, and that it has kept the final model. What travels is in
`messages`. Nothing is pickled by heroes. `opened(parts)` starts a simulation; `opened(parts, Link(grid))`
uses the grid that Flower handed to a ServerApp.
"""

from __future__ import annotations

import os

from heroes.errors import ConfigError

for _name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(_name, "0")  # before the import: nobody is told that this runs
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
try:
    from heroes.transport.engines.flower.client import check_number, client_app
    from heroes.transport.engines.flower.engine import FlowerEngine, opened
    from heroes.transport.engines.flower.grids import Link, simulated
except ImportError as error:
    raise ConfigError(f"Flower is not there ({error}): pip install 'heroes-fl[flower]'") from None

__all__ = ["FlowerEngine", "Link", "check_number", "client_app", "opened", "simulated"]
