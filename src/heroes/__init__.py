"""heroes: federated learning on heterogeneous edge devices.

>>> import heroes
>>> run = heroes.run(heroes.recipes.digits(rounds=2))
>>> run.summary().rounds
2

Names are looked up when first used, so that `heroes.report` and `heroes.config` work without loading torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heroes import data, recipes, report
    from heroes.config import Config
    from heroes.data.examples import Examples, FederatedData, Shares
    from heroes.errors import HeroesError
    from heroes.models.layers import stacked
    from heroes.running import Run, resume, run

__version__ = "0.1.0"

_HOMES = {
    "Config": "heroes.config",
    "Examples": "heroes.data.examples",
    "FederatedData": "heroes.data.examples",
    "HeroesError": "heroes.errors",
    "Run": "heroes.running",
    "Shares": "heroes.data.examples",
    "resume": "heroes.running",
    "run": "heroes.running",
    "stacked": "heroes.models.layers",
}
_ROOMS = ("data", "recipes", "report")

__all__ = [
    "Config",
    "Examples",
    "FederatedData",
    "HeroesError",
    "Run",
    "Shares",
    "__version__",
    "data",
    "recipes",
    "report",
    "resume",
    "run",
    "stacked",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"heroes.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'heroes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
