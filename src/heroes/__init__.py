"""heroes: federated learning on heterogeneous edge devices.

>>> import heroes
>>> run = heroes.run(heroes.recipes.digits(rounds=2))
>>> run.summary().rounds
2

Names are looked up when first used, so that `heroes.report` and `heroes.settings.config` work without loading
torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heroes import data, report
    from heroes.client.metrics import metric
    from heroes.data.examples import Examples, FederatedData, Shares
    from heroes.errors import HeroesError
    from heroes.models.stacks import stacked
    from heroes.runs.loading import load
    from heroes.runs.running import Run, resume, run
    from heroes.settings import recipes
    from heroes.settings.config import Config

__version__ = "0.2.0"

_HOMES = {
    "Config": "heroes.settings.config",
    "Examples": "heroes.data.examples",
    "FederatedData": "heroes.data.examples",
    "HeroesError": "heroes.errors",
    "Run": "heroes.runs.running",
    "Shares": "heroes.data.examples",
    "load": "heroes.runs.loading",
    "metric": "heroes.client.metrics",
    "resume": "heroes.runs.running",
    "run": "heroes.runs.running",
    "stacked": "heroes.models.stacks",
}
_ROOMS = {"data": "heroes.data", "recipes": "heroes.settings.recipes", "report": "heroes.report"}

__all__ = [
    "Config",
    "Examples",
    "FederatedData",
    "HeroesError",
    "Run",
    "Shares",
    "__version__",
    "data",
    "load",
    "metric",
    "recipes",
    "report",
    "resume",
    "run",
    "stacked",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'heroes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
