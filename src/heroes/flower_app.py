"""The Flower app that `flwr run` starts on a SuperLink and its nodes; `heroes flower init` writes its folder.

The run configuration (`[tool.flwr.app.config]`, or `flwr run --run-config`) has these keys: `config`, the
file with the configuration of heroes, in the app's folder; `out`, the run folder, where a run that it already
holds goes on; `rounds`.
"""

from __future__ import annotations

import logging
import secrets
import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from heroes.assemble import NOTHING, Own, OwnParts, at_clients, at_node, received
from heroes.client.training import Trainer
from heroes.data import FederatedData
from heroes.errors import ConfigError, HeroesError, printable
from heroes.messages import RoundRecord
from heroes.report.metrics import Metric
from heroes.runs.configured import extended
from heroes.runs.folder import held
from heroes.runs.running import Run, resume, run
from heroes.settings import toml_text
from heroes.settings.config import Config
from heroes.settings.recipes import EXPERIMENTS
from heroes.settings.toml_files import load
from heroes.transport.engines import flower

_PATIENCE = 120.0  # seconds
_SEED_BITS = 63
log = logging.getLogger("flwr")  # what Flower streams to whoever started the run


class Parts(OwnParts):
    """Parts of your own for an app; what is not given is as the configuration names it.

    `data(client)` is called on the client's node, and `data(None)` on the server. `Parts.of(module)` takes
    the parts that a module has, as `heroes run --own FILE` does.
    """

    def server_app(self) -> ServerApp:
        """The Flower ServerApp, which leads."""
        app = ServerApp()

        @app.main()
        def main(grid: Grid, context: Context) -> None:
            try:
                lead(dict(context.run_config), self, grid)
            except HeroesError as error:
                log.error("heroes: %s", printable(str(error)))
                raise

        return app

    def client_app(self) -> ClientApp:
        """The Flower ClientApp, which trains."""
        named = partial(at_node, NOTHING)
        return flower.client_app(named if self == Parts() else lru_cache(maxsize=2)(self._prepare))

    def _prepare(self, text: str, client: int) -> tuple[Trainer, FederatedData]:
        config, keys = received(text, None if self.strategy is None else type(self.strategy))
        flower.check_number(client, config.federation.clients)  # before data of the user's own are asked for
        own = Own(self.model, self.here(config, client), self.strategy, self.loss, self.metrics, self.sampler)
        return at_clients(config, own, seed=keys)


def lead(settings: dict[str, Any], own: Parts, grid: Grid) -> Run:
    """Train on a grid's nodes as the run configuration says, or go on with the run that the folder holds."""
    folder = Path(str(settings.get("out", "runs/flower")))
    changes = {"engine.name": "flower"}
    if settings.get("rounds"):
        changes["federation.rounds"] = settings["rounds"]
    log.info("heroes: the run folder is %s", printable(str(folder.absolute())))
    engine = partial(flower.opened, link=flower.Link(grid))
    same: dict[str, Any] = {
        "model": own.model,
        "strategy": own.strategy,
        "loss": own.loss,
        "metrics": own.metrics,
        "sampler": own.sampler,
    }
    same |= {"engine": engine, "on_round": _told, "on_progress": _noted, "track": ["live"]}
    with held(folder, _PATIENCE):  # the ServerApp of a SuperLink that was killed may not have noticed yet
        records = folder / "records.jsonl"
        if records.is_file() and records.stat().st_size:
            data = own.here(extended(folder, changes, Own(strategy=own.strategy)), None)
            finished = resume(folder, changes, data=data, **same)
        else:  # a run that ended before its first round has nothing to lose
            config = configured(settings).changed(changes)
            finished = run(config, data=own.here(config, None), out=folder, overwrite=True, **same)
    log.info("heroes: done")
    return finished


def configured(settings: dict[str, Any]) -> Config:
    """The configuration from the app's folder, which Flower puts on the path of modules.

    Nodes get that folder too: a seed that is not in it is drawn here, and stays here in the run folder.
    """
    name = str(settings.get("config", "config.toml"))
    for place in filter(
        None, sys.path
    ):  # not the folder where the SuperLink was started: Flower has a config.toml, too
        if (Path(place) / name).is_file():
            config = load(Path(place) / name, EXPERIMENTS)
            given = "seed" in toml_text.read(Path(place) / name)
            return config if given else config.changed({"seed": secrets.randbits(_SEED_BITS)})
    raise ConfigError(f"the run configuration says config = {name!r}, but the app's folder has no such file")


def _told(record: RoundRecord) -> None:
    score = "" if record.score is None else f", {record.metric} {Metric(record.metric).text(record.score)}"
    lost = (
        f", {len(record.missing)} left out (for example {record.missing[0].reason})" if record.missing else ""
    )
    log.info("heroes: round %d in %.1f s%s", record.round, record.duration, printable(score + lost))


def _noted(what: str, done: int, total: int | None) -> None:
    if not total:
        log.info("heroes: %s", printable(what))


server_app = Parts().server_app()
client_app = Parts().client_app()
