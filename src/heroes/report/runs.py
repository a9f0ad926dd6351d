"""Run folders as plain data; runs that differ only in their seed are one group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from heroes.errors import RunFolderError
from heroes.messages import RoundRecord
from heroes.report.metrics import Metric
from heroes.report.records import read_config, read_records
from heroes.settings.config import keys

# runs that differ in these, or in their engine and trackers, are the same but for the seed
IRRELEVANT = (
    "seed",
    "training.device",
    "data.directory",
    "data.source",
    "own.file",  # own.digest says what is in it
)
# what strategies must share to be compared: whole sections, and single keys
WORLD = ("data.", "fleet.", "faults.")
WORLD_KEYS = (
    "federation.clients",
    "federation.cohort",
    "model.name",
    "own.digest",
    "evaluation.sample",
)
Identity = tuple[tuple[str, str], ...]  # the settings that tell runs apart


@dataclass(frozen=True)
class RunData:
    """A run, as read from its folder. `notes` tell what a reader must know, such as a line cut off."""

    path: Path
    label: str
    strategy: str
    seed: int
    experiment: str
    config: Mapping[str, Any] = field(repr=False)
    rows: tuple[RoundRecord, ...] = field(repr=False)
    torn: bool = False
    environment: Mapping[str, Any] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    row: str = ""
    """what its group is called, if somebody has a name for it"""

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration with dotted names."""
        return flat(self.config)

    @property
    def clock(self) -> str:
        """Whether its seconds are virtual or wall time."""
        return self.rows[-1].clock

    @property
    def sampled(self) -> bool:
        """Whether it was tested on a sample of the test set until the end."""
        return self.settings.get("evaluation.sample") not in (None, "none")

    @property
    def metric(self) -> Metric:
        """Its main metric."""
        return Metric.of(self.rows)


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed, in the order of their seeds."""

    label: str
    strategy: str
    variant: int  # how many groups of the same strategy come before
    runs: tuple[RunData, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @cached_property
    def world(self) -> Identity:
        """The settings that runs must share for their strategies to be compared."""
        return tuple(sorted(_world(self.runs[0]).items()))


def load_run(folder: Path | str) -> RunData:
    """Read the run folder `folder`. A line cut off is left out and noted; a run without a finished round is
    refused.
    """
    path = Path(folder)
    config, records = read_config(path), read_records(path)
    said = f"the last line of {str(path / 'records.jsonl')!r} was cut off and is left out"
    if not records.rows:
        cut = "; its only line was cut off" if records.torn else ""
        raise RunFolderError(f"{str(path)!r} is an empty run: it has no finished round{cut}")
    environment = _environment(path)
    unknown = (
        []
        if environment
        else [f"{str(path)!r} has no readable environment.json, so it is not known what it ran on"]
    )
    return RunData(
        path=path,
        label=path.resolve().name,
        strategy=_wanted(config, path, "strategy.name", str),
        seed=_wanted(config, path, "seed", int),
        experiment=_wanted(config, path, "experiment", str),
        config=config,
        rows=records.rows,
        torn=records.torn,
        environment=environment,
        notes=tuple([said] * records.torn + unknown),
    )


def load_runs(folders: Iterable[Path | str]) -> list[RunData]:
    """Read several run `folders`, each only once."""
    distinct = {Path(folder).resolve(): folder for folder in reversed(list(folders))}
    return [load_run(folder) for folder in reversed(distinct.values())]


def group_runs(runs: Sequence[RunData]) -> list[Group]:
    """Put together the runs that differ only in their seed; groups are in the order of their first runs.

    A group is named after its strategy, followed by the settings that differ if two groups would have the
    same name. Of two runs with the same settings and seed, the longer one is kept.
    """
    kept: dict[tuple[Identity, int], RunData] = {}
    for run in runs:
        key = (_identity(run, ()), run.seed)
        if key not in kept or len(run.rows) > len(kept[key].rows):
            kept[key] = run
    return _groups(list(kept.values()), ())


def series_along(runs: Sequence[RunData], key: str) -> list[Group]:
    """Put together the runs that differ only in their seed and in one setting; names mention neither."""
    return _groups(runs, (key,))


def _groups(runs: Sequence[RunData], ignoring: tuple[str, ...]) -> list[Group]:
    members: dict[Identity, list[RunData]] = {}
    for run in runs:
        members.setdefault(_identity(run, ignoring), []).append(run)
    firsts = [group[0] for group in members.values()]
    strategies = [run.strategy for run in firsts]
    return [
        Group(
            label=_group_label(group[0], firsts, ignoring),
            strategy=group[0].strategy,
            variant=strategies[:index].count(group[0].strategy),
            runs=tuple(sorted(group, key=lambda run: run.seed)),
        )
        for index, group in enumerate(members.values())
    ]


def repeated(runs: Sequence[RunData], groups: Sequence[Group]) -> list[str]:
    """A note for every run that is left out because another one has the same settings and seed."""
    used = {id(run) for group in groups for run in group.runs}
    return [
        f"{run.label!r} repeats another run (same settings, same seed) and is left out"
        for run in runs
        if id(run) not in used
    ]


def different_worlds(groups: Sequence[Group]) -> list[str]:
    """A note that says in which settings the worlds of groups differ; none if all share one world."""
    told = []
    for key in sorted({key for group in groups for key, _ in group.world}):
        labels: dict[str, list[str]] = {}
        for group in groups:
            labels.setdefault(dict(group.world).get(key, "none"), []).append(group.label)
        if len(labels) > 1:
            each = ", ".join(f"{value} ({', '.join(names)})" for value, names in labels.items())
            told.append(f"{key} is {each}")
    return [f"runs in different worlds are not compared with each other: {'; '.join(told)}"] if told else []


def differences(runs: Sequence[RunData]) -> dict[str, list[Any]]:
    """The settings in which runs differ, with the value in each run; None if a run does not have it."""
    all_settings = [run.settings for run in runs]
    keys = dict.fromkeys(key for settings in all_settings for key in settings)
    table = {key: [settings.get(key) for settings in all_settings] for key in keys}
    return {key: values for key, values in table.items() if any(value != values[0] for value in values[1:])}


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level, with dotted names.

    >>> flat({"seed": 1, "data": {"gamma": 40.0}})
    {'seed': 1, 'data.gamma': 40.0}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _identity(run: RunData, ignoring: tuple[str, ...]) -> Identity:
    """What a run shares with those of its group. Somebody who names rows knows which runs belong to one, also
    if some are older than a setting of their strategy, or in another precision; only worlds are kept apart.
    """
    settings = (
        {"": run.row, **_world(run)}
        if run.row
        else _defaults() | {key: _plain(value) for key, value in run.settings.items()}
    )
    return tuple((key, value) for key, value in sorted(settings.items()) if _matters(key, ignoring))


def _world(run: RunData) -> dict[str, str]:
    """The settings of a run's world. Those that its version did not have yet are at their defaults."""
    settings = _defaults() | {key: _plain(value) for key, value in run.settings.items()}
    return {key: value for key, value in settings.items() if _in_world(key) and key not in IRRELEVANT}


def _in_world(key: str) -> bool:
    return key.startswith(WORLD) or key in WORLD_KEYS


@cache
def _defaults() -> dict[str, str]:
    """What a run did that is older than a setting, for all settings but the strategy's."""
    return {key: _plain(value) for key, value, _ in keys() if not key.startswith("strategy.")}


def _plain(value: Any) -> str:
    """A value as text, the same whether it is a default or was read from TOML."""
    return "none" if value is None else str(list(value) if isinstance(value, tuple) else value)


def _matters(key: str, ignoring: tuple[str, ...]) -> bool:
    return key not in IRRELEVANT and key not in ignoring and not key.startswith(("engine.", "tracking."))


def _group_label(run: RunData, firsts: Sequence[RunData], ignoring: tuple[str, ...]) -> str:
    if run.row:
        return run.row
    within = differences([other for other in firsts if other.strategy == run.strategy])
    worlds = [_world(other) for other in firsts]
    across = [key for key in worlds[0] if any(world.get(key) != worlds[0][key] for world in worlds)]
    telling = [key for key in dict.fromkeys([*within, *across]) if _matters(key, ignoring)]
    settings = run.settings
    short = [key.rpartition(".")[2] for key in telling]
    names = [key if short.count(last) > 1 else last for key, last in zip(telling, short, strict=True)]
    told = zip(names, telling, strict=True)
    said = ", ".join(f"{name}={_short(settings[key])}" for name, key in told if key in settings)
    return f"{run.strategy} ({said})" if said else run.strategy


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wanted(config: Mapping[str, Any], path: Path, key: str, kind: type) -> Any:
    value = flat(config).get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RunFolderError(f"{str(path)!r} is not a run folder: its config.toml does not say {key}")
    return value


def _environment(path: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads((path / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
