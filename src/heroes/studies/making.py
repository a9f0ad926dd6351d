"""Makes the runs of a study that are not kept yet, several at once, and keeps each as soon as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from shutil import rmtree

from heroes.errors import ConfigError, TrainingError
from heroes.runs.planned import Planned
from heroes.settings.config import Config
from heroes.studies.kept import Store
from heroes.studies.plans import Row
from heroes.studies.tables import Outcome
from heroes.tuning.workers import workers

Heard = Callable[[str], None]


def missing(variants: Iterable[Sequence[Row]], store: Store) -> list[tuple[str, Config]]:
    """The runs that are not kept, each once: by variants, the first seed of every row first."""
    todo: dict[str, tuple[str, Config]] = {}
    for rows in variants:
        for configs in zip_longest(*(row.configs for row in rows)):
            for row, config in zip(rows, configs, strict=True):
                if config is not None and store.find(config) is None:
                    todo.setdefault(store.name_of(config), (row.label, config))
    return list(todo.values())


def make(todo: Sequence[tuple[str, Config]], store: Store, folder: Path, jobs: int, heard: Heard) -> None:
    """Run these, or go on with them, in folders of their own, which are removed when a run is kept.

    Raises:
        ConfigError, TrainingError: some runs failed; the others are kept.
    """
    planned = [
        (Planned(_ours(config), folder / store.name_of(config), label), (label, config))
        for label, config in todo
    ]
    failed = []
    with workers(jobs) as crew:
        for (label, config), ended in crew.run(planned):
            place = folder / store.name_of(config)
            if ended.failed is not None:
                failed.append((ended.exit_code, f"{label}, seed {config.seed}: {ended.failed}"))
                heard(failed[-1][1])
                continue
            store.add(place, round(ended.wall_seconds, 1))
            with suppress(OSError):
                rmtree(place)
            heard(f"{label}, seed {config.seed}: kept after {ended.wall_seconds:.0f} s")
    if failed:
        mistake = all(code == ConfigError.exit_code for code, _ in failed)
        kind = ConfigError if mistake else TrainingError
        raise kind(f"{len(failed)} of {len(todo)} runs failed: {failed[0][1]}")


def _ours(config: Config) -> Config:
    """The same run in one process; the engine does not change what it comes to."""
    return config.changed({"engine.name": "in_process", "checkpoint.every": 10})


def outcomes(rows: Sequence[Row], store: Store) -> Iterator[Outcome]:
    """What is kept of every row."""
    for row in rows:
        runs = [run for config in row.configs if (run := store.find(config)) is not None]
        yield Outcome(row.label, tuple(runs), len(row.configs))
