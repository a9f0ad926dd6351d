"""Parts that other packages bring: found by name in entry-point groups, beside the built-in ones.

A package offers a strategy, a model, a data set, a fleet or a tracker in its `pyproject.toml`:

    [project.entry-points."heroes.strategies"]
    fedrolex = "my_package.fedrolex:FedRolex"

Nothing is imported until it is asked for by name. `module_at` reads parts that lie in a file.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, EntryPoints, entry_points, packages_distributions
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from heroes.errors import ConfigError, did_you_mean, said

T = TypeVar("T")
_DIGEST = "__heroes_digest__"
Places = tuple[tuple[str, int], ...]  # where packages are looked for, and when each last changed
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
def _offered(group: str, places: Places) -> EntryPoints:
    """The entry points on this path. To read the metadata of all packages takes longer than all else."""
    return entry_points(group=group)


def _path() -> Places:
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


def module_at(path: Path, digest: str | None = None) -> ModuleType:
    """The module in a file, run once for each version of it; `digest_of` says which one that is.

    Its folder goes to the front of the path of modules, as that of a script does: the file may import what
    lies beside it, and processes that begin anew import the file by its name.

    Args:
        path: of the file, absolute.
        digest: what the file must hash to; an error if it does not, and nothing of it is run.
    """
    content = _content(path)
    found = sha256(content).hexdigest()
    if digest is not None and digest != found:
        raise ConfigError(
            f"{str(path)!r} has changed since the run began (its SHA-256 was {digest[:12]}…, and is "
            f"{found[:12]}…): put the old version back, or say --own {path} to go on with it as it is"
        )
    there = sys.modules.get(path.stem)
    if there is not None and getattr(there, _DIGEST, None) == found and there.__file__ == str(path):
        return there
    _check_name(path, there)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return _run(path, content, found)


def digest_of(module: ModuleType) -> str:
    """SHA-256 of the file that a module of `module_at` was read from."""
    return str(getattr(module, _DIGEST))


def line_of(error: BaseException, file: str) -> str:
    """Where in a file an error comes from, as words in a sentence; nothing if it does not come from there."""
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return f" in line {lines[-1]}" if lines else ""


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {str(path)!r} with parts of your own; put it there, or say --own FILE with "
            "where it is"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot read {str(path)!r}: {error.strerror}; --own takes a Python file with parts of your own"
        ) from None


def _check_name(path: Path, there: ModuleType | None) -> None:
    """A file is imported by its name, which must be free and no path in a package."""
    if path.suffix != ".py" or "." in path.stem:
        raise ConfigError(f"{path.name!r} is no name of a Python module; call the file parts.py, say")
    if there is not None and getattr(there, "__file__", None) != str(path):
        raise ConfigError(
            f"{str(path)!r} has the name of the module {path.stem!r}, which is loaded already; rename the "
            "file"
        )


def _run(path: Path, content: bytes, digest: str) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    module = module_from_spec(spec)
    setattr(module, _DIGEST, digest)
    sys.modules[path.stem] = module
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:  # the user's file can fail in any way
        del sys.modules[path.stem]
        raise ConfigError(
            f"{str(path)!r} cannot be run: it fails{line_of(error, str(path))} with {said(error)}"
        ) from error
    return module
