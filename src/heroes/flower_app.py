"""The Flower app: what `flwr run` starts on any SuperLink, and what its nodes run. `heroes flower init` writes the folder for it.

The run configuration (`[tool.flwr.app.config]`, or `flwr run --run-config`) has these keys: `config`, the file with the
configuration of heroes, in the app's folder; `out`, the run folder, where a run that it already holds goes on; `rounds`.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from heroes.config import Config, load
from heroes.engines import flower
from heroes.errors import ConfigError, HeroesError
from heroes.messages import RoundRecord
from heroes.recipes import recipe
from heroes.running import Run, prepare, resume, run

log = logging.getLogger("flwr")  # what Flower streams to whoever started the run
client_app = flower.client_app(prepare)
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Lead a run, or go on with the one that the folder holds."""
    try:
        with flower.using(grid):
            lead(dict(context.run_config))
    except HeroesError as error:
        log.error("heroes: %s", error)
        raise


def lead(settings: dict[str, Any]) -> Run:
    """Train as the run configuration says."""
    folder = Path(str(settings.get("out", "runs/flower")))
    changes = {"engine.name": "flower"}
    if settings.get("rounds"):
        changes["federation.rounds"] = settings["rounds"]
    log.info("heroes: the run folder is %s", folder.absolute())
    records = folder / "records.jsonl"
    if records.is_file() and records.stat().st_size:
        finished = resume(folder, changes, on_round=_told, on_progress=_noted)
    else:  # a run that ended before its first round has nothing to lose
        config = configured(settings).changed(changes)
        finished = run(config, out=folder, overwrite=True, on_round=_told, on_progress=_noted)
    log.info("heroes: done")
    return finished


def configured(settings: dict[str, Any]) -> Config:
    """The configuration from the app's folder, which Flower puts on the path of modules."""
    name = str(settings.get("config", "config.toml"))
    for place in ("", *sys.path):
        if (Path(place) / name).is_file():
            return load(Path(place) / name, recipe)
    raise ConfigError(f"the run configuration says config = {name!r}, but the app's folder has no such file")


def _told(record: RoundRecord) -> None:
    accuracy = "" if record.accuracy is None else f", accuracy {100 * record.accuracy:.1f} %"
    lost = f", {len(record.missing)} left out (for example {record.missing[0].reason})" if record.missing else ""
    log.info("heroes: round %d in %.1f s%s%s", record.round, record.duration, accuracy, lost)


def _noted(what: str, done: int, total: int | None) -> None:
    if not total:
        log.info("heroes: %s", what)
