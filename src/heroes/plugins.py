"""Parts that other packages bring: found by name in entry-point groups, beside the built-in ones.

A package offers a strategy, a model, a data set, a fleet or a tracker in its `pyproject.toml`:

    [project.entry-points."heroes.strategies"]
    fedrolex = "my_package.fedrolex:FedRolex"

Nothing is imported until it is asked for by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points, packages_distributions
from typing import Any, TypeVar

from heroes.errors import ConfigError, did_you_mean, said

T = TypeVar("T")
Path = tuple[tuple[str, int], ...]
GROUPS = {
    "strategy": "heroes.strategies",
    "model": "heroes.models",
    "data set": "heroes.datasets",
    "fleet": "heroes.fleets",
    "tracker": "heroes.trackers",
}


def installed(kind: str) -> dict[str, list[EntryPoint]]:
    """What other packages bring of this kind, by name; several if packages claim the same name."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(_offered(GROUPS[kind], _path()), key=lambda each: (each.name, _package(each))):
        found.setdefault(entry.name, []).append(entry)
    return found


@cache
def _offered(group: str, path: Path) -> EntryPoints:
    """The entry points on this path. To read the metadata of all packages takes longer than all else."""
    return entry_points(group=group)


def _path() -> Path:
    """Where packages are looked for, and when something was last put there or taken away."""
    return tuple((place, _changed(place)) for place in sys.path)


def _changed(place: str) -> int:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:
        return 0


def names(kind: str, built_in: Iterable[str]) -> tuple[str, ...]:
    """Every name of this kind: the built-in ones, then those of other packages."""
    own = tuple(built_in)
    return (*own, *(name for name in installed(kind) if name not in own))


def brought(kind: str) -> list[tuple[str, str]]:
    """What other packages bring of this kind: the name, and which package it is from."""
    return [(name, f"from the package {_package(entries[0])!r}") for name, entries in installed(kind).items()]


def find(kind: str, key: str, name: str, built_in: Mapping[str, T]) -> T:
    """The part of this name; `key` is the setting that names it. A foreign part is not checked yet."""
    claimed = installed(kind).get(name, [])
    if name in built_in:
        if claimed:
            raise ConfigError(
                f"the package {_package(claimed[0])!r} brings a {kind} called {name!r}, but heroes has one "
                "of that name: it is refused; uninstall the package, or ask its authors for another name"
            )
        return built_in[name]
    if len(claimed) > 1:
        packages = " and ".join(repr(_package(entry)) for entry in claimed)
        raise ConfigError(
            f"{key} is {name!r}: the packages {packages} both bring a {kind} of that name; keep one"
        )
    if not claimed:
        raise ConfigError(f"{key} is {name!r}: {did_you_mean(name, names(kind, built_in))}")
    part: T = _loaded(kind, claimed[0])
    return part


def _loaded(kind: str, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # another package can fail in any way
        raise ConfigError(
            f"the {kind} {entry.name!r} of the package {_package(entry)!r} cannot be loaded from "
            f"{entry.value!r}: {said(error)}"
        ) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown"


def origin(part: object) -> dict[str, str | None]:
    """Where a part comes from: its module, and the installed package that brought it, if any."""
    module = str(getattr(part, "__module__", None) or type(part).__module__)
    packages = packages_distributions().get(module.partition(".")[0], [])
    return {"module": module, "package": packages[0] if packages else None}
