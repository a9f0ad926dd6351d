"""The settings of a run as its folder keeps them: which must be there, and which may change on resume."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heroes.assemble import NOTHING, Own, with_file
from heroes.errors import ConfigError, RunFolderError
from heroes.report.records import read_config
from heroes.report.runs import flat
from heroes.runs.folder import CONFIG, read_origins
from heroes.settings.config import Config, keys, parse_kept
from heroes.settings.toml_files import counted
from heroes.strategies import registry

MAY_CHANGE = (
    "federation.rounds",
    "federation.time_budget",
    "federation.traffic_budget",
    "federation.target_accuracy",
    "federation.target",
    "federation.target_loss",
    "federation.patience",
    "server.attempts",
    "engine.",
    "evaluation.",
    "checkpoint.",
    "tracking.",
    "own.",
)
"""What may be different when a run goes on: when it ends, who carries it and how it is watched."""
MAY_NOT = ("engine.clock", "evaluation.average", "evaluation.lookback", "evaluation.sample")
_FIRST_VERSION = {
    "": "experiment seed",
    "federation": "clients cohort rounds time_budget traffic_budget target_accuracy target_loss",
    "data": "name partition gamma alpha phi examples_per_client directory source augment size classes "
    "writers minimum_windows roles test_limit",
    "model": "name max_width rank_ratio norm small_images cell",
    "training": "batch_size learning_rate learning_rate_decay learning_rate_floor momentum weight_decay clip "
    "train_in probes probe_every device",
    "strategy": "name",
    "exchange": "up_bits down_bits error_feedback",
    "fleet": "name upload download jitter csv count_download",
    "faults": "dropout upload_loss crash stall stall_factor garbage silent attackers attack attack_scale "
    "availability day awake",
    "server": "deadline deadline_factor at_least attempts oversample",
    "robust": "clip combine trim guard guard_factor",
    "privacy": "noise clip delta source",
    "evaluation": "every batch_size every_width",
    "checkpoint": "every",
    "engine": "name workers start task_seconds wait_seconds clock model_out model_width",
}
"""The keys that 0.1.0 wrote for every strategy, as they are called now; its files do not say how many."""


def bound(config: Config) -> dict[str, Any]:
    """The settings that rounds depend on, as JSON values: they may not change when a run goes on."""
    kept: dict[str, Any] = json.loads(json.dumps({k: v for k, v in _flat(config).items() if not _free(k)}))
    return kept


def of_folder(folder: Path, own: Own = NOTHING) -> Config:
    """The configuration in a run folder, every key of it.

    If its strategy is missing, an error says whose it was.
    """
    tree = read_config(folder)
    section = tree.get("strategy")
    name = section.get("name") if isinstance(section, Mapping) else None
    given = None if own.strategy is None else own.strategy.name
    if isinstance(name, str) and name not in registry.names() and name != given:
        raise ConfigError(f"the run in {str(folder)!r} used the strategy {name!r}, {_missing(folder)}")
    kind = own.strategy_class if name == given else registry.find(name) if isinstance(name, str) else None
    _check_whole(folder, set(flat(tree)), [key for key, *_ in keys(kind)])
    return parse_kept(tree, own.strategy_class)


def brought(folder: Path, changes: Mapping[str, Any], own: Own = NOTHING) -> Own:
    """The own parts of the run in a folder: the caller's, else those of the file it began with, or of the
    one that the changes name.
    """
    tree, told = read_config(folder), changes.get("own.file")
    return with_file(own, tree if told is None else {**tree, "own": {"file": told}})


def extended(folder: Path, changes: Mapping[str, Any], own: Own = NOTHING) -> Config:
    """The configuration of the run in a folder with some keys changed, if they may be."""
    before = of_folder(folder, own)
    after = before.changed({**changes, **(own.remembered if own.file else {})})
    for key in before.differs(after):
        if not _free(key):
            raise ConfigError(
                f"{key} cannot change when a run goes on: the rounds that are done depend on it. Start a new "
                "run"
            )
    return after


def _free(key: str) -> bool:
    return key.startswith(MAY_CHANGE) and key not in MAY_NOT


def _flat(config: Config) -> dict[str, Any]:
    return dict(flat(config.model_dump()))


def _check_whole(folder: Path, there: set[str], known: Sequence[str]) -> None:
    """An error if the file lacks settings that were in it when it was written."""
    count = counted(folder / CONFIG)
    if count is None:
        lacks = [key for key in _first_keys() if key in known and key not in there]
    else:
        lacks = [key for key in known if key not in there] if len(there) < count else []
    if lacks:
        shown = ", ".join(lacks[:3]) + (f" and {len(lacks) - 3} more" if len(lacks) > 3 else "")
        raise RunFolderError(
            f"{CONFIG} of {str(folder)!r} lacks {shown}; it was cut off or edited: put back what was there, "
            "or start a new run with --overwrite"
        )


def _first_keys() -> Iterator[str]:
    for section, names in _FIRST_VERSION.items():
        yield from (f"{section}.{name}" if section else name for name in names.split())


def _missing(folder: Path) -> str:
    """Where a run's strategy came from, and how to have it again."""
    was = read_origins(folder).get("strategy", {})
    if was.get("package"):
        return f"which the package {was['package']!r} brought: install it, then resume"
    return (
        f"which came from the module {was.get('module')!r}: call heroes.resume(folder, strategy=...) with it"
    )
