"""Results small enough to keep in a repository: a run's settings and its rounds, in one compressed file.

A store is a folder of such files. A run that is in it is never made again, on whatever machine.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from heroes import __version__
from heroes.errors import HeroesError, RunFolderError
from heroes.files import write_whole
from heroes.messages import RoundRecord
from heroes.report.records import read_record
from heroes.report.runs import RunData, load_run
from heroes.settings.config import Config, flat, parse_kept
from heroes.settings.earlier import by_present_names

_FACTS = ("tau_star", "rule", "deadline", "counter_variance")
_MACHINE = ("system", "processors", "torch")  # of what a run ran on
_DIGITS = 6  # significant digits of a kept number
_LARGEST = 100_000_000  # bytes of a file when unpacked
_APART = ("engine.", "checkpoint.", "tracking.")  # settings that do not change what a run comes to
_APART_KEYS = ("training.device", "data.directory", "data.source")
Key = tuple[tuple[str, str], ...]


def key_of(config: Config) -> Key:
    """What tells a run from others: every setting that can change what it comes to, the seed too."""
    settings = flat(config.model_dump(mode="json"))
    unread = config.strategy.unforeseen if config.fleet.foresight == "exact" else frozenset()
    idle = {f"strategy.{name}" for name in config.strategy.idle | unread}
    return tuple(sorted((key, str(value)) for key, value in settings if not (_apart(key) or key in idle)))


def _apart(name: str) -> bool:
    return name.startswith(_APART) or name in _APART_KEYS


@dataclass(frozen=True)
class Store:
    """The kept results in a folder."""

    folder: Path

    @cached_property
    def runs(self) -> dict[Key, RunData]:
        """All of them. A file that cannot be read is an error that names it."""
        found = [load_kept(path) for path in sorted(self.folder.glob("*.json.gz"))]
        return {key_of(parse_kept(run.config)): run for run in found}

    def find(self, config: Config) -> RunData | None:
        """The result of this very run, if it is kept. It says in which precision `auto` was, on whatever
        machine that was.
        """
        if config.training.precision != "auto":
            return self.runs.get(key_of(config))
        known = (config.changed({"training.precision": word}) for word in ("float32", "bfloat16"))
        return next((run for each in known if (run := self.runs.get(key_of(each)))), None)

    @staticmethod
    def name_of(config: Config) -> str:
        """What the file of a run is called, without its ending."""
        mark = zlib.crc32(repr(key_of(config)).encode())
        return f"{config.experiment}-{config.strategy.name}-{config.seed}-{mark:08x}"

    def add(self, folder: Path, core_seconds: float | None = None) -> RunData:
        """Keep what a run folder holds."""
        run = load_run(folder)
        config = parse_kept(run.config)
        path = self.folder / f"{self.name_of(config)}.json.gz"
        content = {
            "heroes": __version__,
            "core_seconds": core_seconds,
            "machine": {name: (run.environment or {}).get(name) for name in _MACHINE},
            "config": config.model_dump(mode="json"),
            "records": [_rounded(_slim(row)) for row in run.rows],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        write_whole(path, gzip.compress(text.encode(), mtime=0))
        kept = load_kept(path)
        self.runs[key_of(config)] = kept
        return kept


def load_kept(path: Path) -> RunData:
    """A kept result, as a run."""
    try:
        with gzip.open(path) as file:
            content = json.loads(file.read(_LARGEST))
        rows = tuple(read_record(json.dumps(row)) for row in content["records"])
        settings = by_present_names(content["config"])
        config = parse_kept(settings)
        if not rows or [row.round for row in rows] != list(range(1, len(rows) + 1)):
            raise ValueError("its rounds are not 1, 2, 3 and so on")
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        why = f"{type(error).__name__}: {error}"
        raise RunFolderError(
            f"{str(path)!r} is not a kept result: {why}; take it out, and its run is made again"
        ) from None
    except HeroesError as error:
        version = content.get("heroes") if isinstance(content, Mapping) else None
        raise RunFolderError(
            f"{str(path)!r} was written by heroes {version} and does not fit this version: {error}"
        ) from None
    return RunData(
        path=path,
        label=path.name.removesuffix(".json.gz"),
        strategy=config.strategy.name,
        seed=config.seed,
        experiment=config.experiment,
        config=settings,
        rows=rows,
        environment={
            "heroes": content.get("heroes"),
            "core_seconds": content.get("core_seconds", content.get("wall_seconds")),  # as it was once called
            "machine": content.get("machine"),
        },
    )


def _slim(row: RoundRecord) -> dict[str, Any]:
    """A round without what no table or picture shows."""
    facts = {name: row.facts[name] for name in _FACTS if name in row.facts}
    clients = tuple(replace(client, groups=(), pieces=(), loss=None) for client in row.clients)
    return asdict(replace(row, facts=facts, clients=clients, missing=()))


def _rounded(value: Any) -> Any:
    """Numbers with as many digits as matter."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else value
