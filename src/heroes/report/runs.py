"""Run folders as plain data, and runs that differ in nothing but their seed as one group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heroes.errors import RunFolderError
from heroes.report.records import Row, read_config, read_records

IRRELEVANT = (
    "seed",
    "training.device",
    "data.directory",
    "data.source",
)  # and the engine: no difference
WORLD = (
    "data.",
    "fleet.",
    "federation.clients",
    "federation.cohort",
    "model.name",
)  # what schemes must share to be compared
_LARGEST = 1e300  # of a number in a record; sums of many such are still finite
Identity = tuple[tuple[str, str], ...]  # the settings that tell runs apart


@dataclass(frozen=True)
class RunData:
    """A run as its folder tells it. `notes` say what a reader must know, such as a line that was cut off."""

    path: Path
    label: str
    scheme: str
    seed: int
    task: str
    config: Mapping[str, Any]
    rows: tuple[Row, ...]
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
        return str(self.rows[-1].get("clock", "virtual"))


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only, in the order of their seeds."""

    label: str
    scheme: str
    variant: int  # how many groups of the same scheme come before
    runs: tuple[RunData, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def world(self) -> Identity:
        """The settings that runs must share for their schemes to be compared."""
        return tuple(
            (key, str(value)) for key, value in sorted(self.runs[0].settings.items()) if key.startswith(WORLD)
        )


def load_run(folder: Path | str) -> RunData:
    """A run folder as data. A line that was cut off is left out and noted; a run without a whole round is an
    error.
    """
    path = Path(folder)
    config, records = read_config(path), read_records(path)
    said = f"the last line of {str(path / 'records.jsonl')!r} was cut off and is left out"
    if not records.rows:
        cut = "; its only line was cut off" if records.torn else ""
        raise RunFolderError(f"{str(path)!r} is an empty run: it has no finished round{cut}")
    for number, row in enumerate(records.rows, 1):
        _check(row, f"line {number} of {str(path / 'records.jsonl')!r}")
    environment = _environment(path)
    unknown = (
        []
        if environment
        else [f"{str(path)!r} has no readable environment.json; what it ran on is not known"]
    )
    return RunData(
        path=path,
        label=path.resolve().name,
        scheme=_wanted(config, path, "strategy.name", str),
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

    A group is called by its scheme; where that does not tell groups apart, by the settings that differ as
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
    schemes = [run.scheme for run in firsts]
    return [
        Group(
            label=_group_label(group[0], firsts, ignoring),
            scheme=group[0].scheme,
            variant=schemes[:index].count(group[0].scheme),
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
    """The settings in which runs differ, each with its value in every run; None where a run does not have it."""
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
    within = differences([other for other in firsts if other.scheme == run.scheme])
    across = [key for key in differences(firsts) if key.startswith(WORLD)]
    telling = [key for key in dict.fromkeys([*within, *across]) if _matters(key, ignoring)]
    settings = run.settings
    said = ", ".join(f"{key.split('.')[-1]}={_short(settings[key])}" for key in telling if key in settings)
    return f"{run.scheme} ({said})" if said else run.scheme


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


def _check(row: Row, where: str) -> None:
    """Refuse a record whose numbers are not numbers."""
    for key in ("clients", "missing"):
        if not isinstance(row[key], list) or not all(isinstance(entry, dict) for entry in row[key]):
            raise RunFolderError(f"{where} is damaged: {key} is not a list of records")
    widths = row.get("accuracy_by_width") or {}
    if not isinstance(widths, dict) or not all(
        str(width).isdecimal() and len(width) < 10 for width in widths
    ):
        raise RunFolderError(f"{where} is damaged: accuracy_by_width is {widths!r}")
    _check_numbers(widths, widths, where)
    optional = [key for key in ("accuracy", "loss", "epsilon") if row.get(key) is not None]
    _check_numbers(row, ("round", "seconds", "duration", "waiting", "traffic", *optional), where)
    for share in (row.get("accuracy") or 0, *widths.values()):
        if not 0 <= share <= 1:
            raise RunFolderError(f"{where} is damaged: an accuracy is {share!r}; it should be from 0 to 1")
    _check_texts(row, where)
    lost = row.get("lost") or {}
    if not isinstance(lost, dict) or not all(type(count) is int for count in lost.values()):
        raise RunFolderError(f"{where} is damaged: lost is {lost!r}, not numbers by cause")
    if not isinstance(row.get("abandoned") or [], list):
        raise RunFolderError(f"{where} is damaged: abandoned is {row['abandoned']!r}, not a list")
    for entry in row["clients"]:
        _check_numbers(
            entry, ("client", "width", "tau", "compute_seconds", "transfer_seconds", "waiting"), where
        )


def _check_texts(row: Row, where: str) -> None:
    """Refuse a record whose facts, reasons or end are of the wrong kind."""
    if not isinstance(row.get("facts") or {}, dict):
        raise RunFolderError(f"{where} is damaged: facts is {row['facts']!r}, not a section")
    if not isinstance(row.get("stopped"), str | None):
        raise RunFolderError(f"{where} is damaged: stopped is {row['stopped']!r}, not a text")
    if not all(isinstance(lost.get("reason"), str) for lost in row["missing"]):
        raise RunFolderError(f"{where} is damaged: a missing client has no reason")


def _check_numbers(entry: Row, keys: Iterable[str], where: str) -> None:
    for key in keys:
        value = entry.get(key)
        if not _finite(value):
            raise RunFolderError(f"{where} is damaged: {key} is {value!r}, not a number")


def _finite(value: Any) -> bool:
    """Whether this is a number that can be reckoned with; JSON can hold whole numbers that no float reaches."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST
