"""Makes the runs of a study that are not kept yet, several at once, and keeps each as soon as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from heroes.errors import ConfigError, TrainingError
from heroes.runs.planned import Planned
from heroes.settings.config import Config
from heroes.studies.kept import Key, Store, key_of
from heroes.studies.plans import Plan, Row
from heroes.studies.plans import rows as rows_of
from heroes.studies.tables import Outcome
from heroes.tuning.workers import workers

Heard = Callable[[Planned, str], None]


def missing(rows: Sequence[Row], store: Store) -> list[tuple[str, Config]]:
    """The runs that are not kept, each once, the first seed of every row first."""
    seeds = max(len(row.configs) for row in rows)
    todo = [(row.label, row.configs[n]) for n in range(seeds) for row in rows if n < len(row.configs)]
    return _once([(label, config) for label, config in todo if store.find(config) is None])


def to_make(plan: Plan, store: Store) -> list[tuple[str, Config]]:
    """The runs of a plan that are not kept, each once, variant by variant."""
    return _once(
        [
            (f"{variant}, {label}" if variant else label, config)
            for variant in plan.variants
            for label, config in missing(list(rows_of(plan, variant)), store)
        ]
    )


def _once(todo: Sequence[tuple[str, Config]]) -> list[tuple[str, Config]]:
    """Rows may be the same run; the first of them gives it its name."""
    found: dict[Key, tuple[str, Config]] = {}
    for each in todo:
        found.setdefault(key_of(each[1]), each)
    return list(found.values())


def kept_runs(plan: Plan, store: Store) -> tuple[int, int]:
    """How many of a plan's runs are kept, and how many it has."""
    rows = [row for variant in plan.variants for row in rows_of(plan, variant)]
    return counted(outcomes(rows, store))


def counted(rows: Iterable[Outcome]) -> tuple[int, int]:
    """How many runs of these rows are kept, and how many there are; one that is in two rows counts once."""
    rows = list(rows)
    there = {run.path for outcome in rows for run in outcome.runs}
    return len(there), len({key for outcome in rows for key in outcome.keys})


def refuse_without_data(configs: Sequence[Config]) -> None:
    """Refuse runs whose data set is not at hand, before the first of them is made."""
    from heroes.data.datasets import DataOptions
    from heroes.data.registry import REGISTRY

    for data in {config.data.name: config.data for config in configs}.values():
        if data.name in REGISTRY:
            folder, source = (None if path is None else Path(path) for path in (data.directory, data.source))
            DataOptions(folder, source).root(data.name)


def planned(todo: Sequence[tuple[str, Config]], store: Store, folder: Path) -> list[Planned]:
    """These runs, each in a folder of its own in there."""
    return [Planned(_ours(config), folder / store.name_of(config), label) for label, config in todo]


def title(run: Planned) -> str:
    """What a run is called in its study."""
    return f"{run.variant}, seed {run.config.seed}"


def make(todo: Sequence[Planned], store: Store, jobs: int, heard: Heard) -> None:
    """Run these, or go on with them; the folder of a run is removed when the run is kept.

    Raises:
        ConfigError, TrainingError: some runs failed; the others are kept.
    """
    for needed in (store.folder, *(run.folder.parent for run in todo)):
        needed.mkdir(parents=True, exist_ok=True)  # before anything that takes long
    unfinished = []
    for run in todo:
        if run.done:  # by a process that was ended before it could keep it
            _keep(run.folder, store, None)
            heard(run, "was done already, kept")
        else:
            unfinished.append((run, (run, run.begun)))
    failed = []
    with workers(jobs if unfinished else 0) as crew:
        for (run, gone_on), ended in crew.run(unfinished):
            if ended.failed is not None:
                failed.append((ended.exit_code, f"{title(run)}: {ended.failed}"))
                heard(run, ended.failed)
                continue
            took = None if gone_on else round(ended.core_seconds, 1)  # an earlier part's is not known
            _keep(run.folder, store, took)
            heard(run, f"kept after {ended.wall_seconds:.0f} s")
    if failed:
        mistake = all(code == ConfigError.exit_code for code, _ in failed)
        kind = ConfigError if mistake else TrainingError
        raise kind(f"{len(failed)} of {len(todo)} runs failed: {failed[0][1]}")


def _keep(place: Path, store: Store, core_seconds: float | None) -> None:
    store.add(place, core_seconds)
    with suppress(OSError):
        rmtree(place)


def _ours(config: Config) -> Config:
    """The same run in one process; the engine does not change what it comes to."""
    return config.changed({"engine.name": "in_process", "checkpoint.every": 2})


def outcomes(rows: Sequence[Row], store: Store) -> Iterator[Outcome]:
    """What is kept of every row."""
    for row in rows:
        keys = tuple(key_of(config) for config in row.configs)
        runs = tuple(run for run in map(store.find, row.configs) if run is not None)
        yield Outcome(row.label, runs, len(row.configs), keys)
