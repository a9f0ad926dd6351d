"""Run folders as plain data, and runs that differ in nothing but their seed as one group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heroes.errors import RunFolderError
from heroes.messages import RoundRecord
from heroes.report.metrics import Metric
from heroes.report.records import read_config, read_records

# and the engine: no difference
IRRELEVANT = (
    "seed",
    "training.device",
    "data.directory",
    "data.source",
)
# what strategies must share to be compared
WORLD = (
    "data.",
    "fleet.",
    "federation.clients",
    "federation.cohort",
    "model.name",
)
Identity = tuple[tuple[str, str], ...]  # the settings that tell runs apart


@dataclass(frozen=True)
class RunData:
    """A run as its folder tells it. `notes` say what a reader must know, such as a line that was cut off."""

    path: Path
    label: str
    strategy: str
    seed: int
    task: str
    config: Mapping[str, Any]
    rows: tuple[RoundRecord, ...]
    torn: bool = False
    environment: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration with dotted names."""
        return flat(self.config)

    @property
    def clock(self) -> str:
        """What its seconds are: virtual, or wall."""
        return self.rows[-1].clock

    @property
    def metric(self) -> Metric:
        """What its curve and its targets go by."""
        return Metric.of(self.rows)


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only, in the order of their seeds."""

    label: str
    strategy: str
    variant: int  # how many groups of the same strategy come before
    runs: tuple[RunData, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def world(self) -> Identity:
        """The settings that runs must share for their strategies to be compared."""
        return tuple(
            (key, str(value)) for key, value in sorted(self.runs[0].settings.items()) if key.startswith(WORLD)
        )


def load_run(folder: Path | str) -> RunData:
    """A run folder as data. A torn line is left out and noted; a run without a round is an error."""
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
        else [f"{str(path)!r} has no readable environment.json; what it ran on is not known"]
    )
    return RunData(
        path=path,
        label=path.resolve().name,
        strategy=_wanted(config, path, "strategy.name", str),
        seed=_wanted(config, path, "seed", int),
        task=_wanted(config, path, "task", str),
        config=config,
        rows=records.rows,
        torn=records.torn,
        environment=environment,
        notes=tuple([said] * records.torn + unknown),
    )


def load_runs(folders: Iterable[Path | str]) -> list[RunData]:
    """Several run folders, each once."""
    distinct = {Path(folder).resolve(): folder for folder in reversed(list(folders))}
    return [load_run(folder) for folder in reversed(distinct.values())]


def group_runs(runs: Sequence[RunData]) -> list[Group]:
    """Runs put together that differ in their seed only, in the order in which the groups first appear.

    A group is called by its strategy; where that does not tell groups apart, by the settings that differ as
    well. Of two runs with the same settings and seed the longer one is kept.
    """
    kept: dict[tuple[Identity, int], RunData] = {}
    for run in runs:
        key = (_identity(run, ()), run.seed)
        if key not in kept or len(run.rows) > len(kept[key].rows):
            kept[key] = run
    return _groups(list(kept.values()), ())


def series_along(runs: Sequence[RunData], key: str) -> list[Group]:
    """Runs put together that differ in their seed and in one setting only, and called by neither."""
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
    """A note for every run that a group does not use because another one is the same."""
    used = {id(run) for group in groups for run in group.runs}
    return [
        f"{run.label!r} repeats another run (same settings, same seed) and is left out"
        for run in runs
        if id(run) not in used
    ]


def differences(runs: Sequence[RunData]) -> dict[str, list[Any]]:
    """The settings in which runs differ, each with its value in every run; None where a run has none."""
    all_settings = [run.settings for run in runs]
    keys = dict.fromkeys(key for settings in all_settings for key in settings)
    table = {key: [settings.get(key) for settings in all_settings] for key in keys}
    return {key: values for key, values in table.items() if any(value != values[0] for value in values[1:])}


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names.

    >>> flat({"seed": 1, "data": {"gamma": 40.0}})
    {'seed': 1, 'data.gamma': 40.0}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _identity(run: RunData, ignoring: tuple[str, ...]) -> Identity:
    return tuple((key, repr(value)) for key, value in sorted(run.settings.items()) if _matters(key, ignoring))


def _matters(key: str, ignoring: tuple[str, ...]) -> bool:
    return key not in IRRELEVANT and key not in ignoring and not key.startswith("engine.")


def _group_label(run: RunData, firsts: Sequence[RunData], ignoring: tuple[str, ...]) -> str:
    within = differences([other for other in firsts if other.strategy == run.strategy])
    across = [key for key in differences(firsts) if key.startswith(WORLD)]
    telling = [key for key in dict.fromkeys([*within, *across]) if _matters(key, ignoring)]
    settings = run.settings
    said = ", ".join(f"{key.split('.')[-1]}={_short(settings[key])}" for key in telling if key in settings)
    return f"{run.strategy} ({said})" if said else run.strategy


def _short(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


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
