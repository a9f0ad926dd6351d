"""The user's own parts of a run, in place of those that the configuration names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from heroes import plugins
from heroes.client.losses import Function
from heroes.client.objectives import check_names
from heroes.contracts import Sampler
from heroes.data import Dataset, Examples, FederatedData
from heroes.errors import ConfigError
from heroes.models.family import Build
from heroes.settings.config import Config
from heroes.settings.sections import BUILT_IN_METRICS
from heroes.strategies import registry
from heroes.strategies.base import Strategy

OwnData = FederatedData | Dataset | tuple[Examples, Examples]
AskedFor = Callable[[Config], OwnData]
"""Data that is made when it is needed, for the clients of a configuration."""
_NAMED_IN = {
    "model": "model.name",
    "data": "data.name",
    "loss": "objective.name",
    "sampler": "federation.sampler",
}


@dataclass(frozen=True)
class Own:
    """The parts that the user brings. For those that are None the configuration names one.

    `file` is where they were read from, and `digest` which version of it, if that was a file.
    """

    model: Build | None = None
    data: OwnData | AskedFor | None = None
    strategy: Strategy | None = None
    loss: Function | None = None
    metrics: Mapping[str, Any] | None = None
    sampler: Sampler | None = None
    file: str | None = None
    digest: str | None = None

    @property
    def anything(self) -> bool:
        """Whether there is any part at all."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    @property
    def remembered(self) -> dict[str, str | None]:
        """The settings that say which file the parts come from."""
        return {"own.file": self.file, "own.digest": self.digest}

    @property
    def strategy_class(self) -> type[Strategy] | None:
        """The class of the user's strategy, which its section of a configuration is read with."""
        return None if self.strategy is None else type(self.strategy)

    @property
    def elsewhere(self) -> Own | None:
        """What other processes get of it; None if they cannot: models, data and losses stay here."""
        if any(part is not None for part in (self.model, self.data, self.loss, self.metrics)):
            return None
        return Own(strategy=self.strategy)

    def named(self, config: Config) -> Config:
        """The configuration with the user's parts marked as "own": alone it cannot repeat the run."""
        if self.strategy is not None and not (self.file and config.strategy.name == self.strategy.name):
            config = config.with_strategy(registry.own(self.strategy))
        own: dict[str, str | None] = {
            key: "own" for part, key in _NAMED_IN.items() if getattr(self, part) is not None
        }
        if self.file is not None or config.own.file is not None:
            own |= self.remembered
        return self._measured(config.changed(own) if own else config)

    def _measured(self, config: Config) -> Config:
        """The user's own metrics come first, then those that the configuration names or the loss suggests."""
        if not self.metrics:
            return config
        check_names(self.metrics)
        aim = config.objective
        others = aim.metrics or (() if aim.name == "own" else aim.measured)
        return config.changed({"objective.metrics": tuple(dict.fromkeys([*self.metrics, *others]))})

    def check_again(self, config: Config, folder: Path) -> None:
        """Raise a ConfigError unless the run in this folder began with the same own parts."""
        for part, before, now in self._places(config):
            if before != now:
                does = "was run with your own" if before else "was not run with your own"
                name = part.partition(" ")[0]
                if self.file is not None:
                    lacks = f"{self.file!r} {'lacks' if before else 'has'} it; give a file as it was then"
                else:
                    lacks = f"heroes.resume(folder, {name}=...) must be called accordingly"
                raise ConfigError(f"{str(folder)!r} {does} {part}: {lacks}")

    def _places(self, config: Config) -> Iterator[tuple[str, object, object]]:
        """Every part, whether the run began with one of the user's own, and whether there is one now."""
        sections = config.model_dump()
        for part, key in _NAMED_IN.items():
            section, _, name = key.partition(".")
            yield part, sections[section][name] == "own", getattr(self, part) is not None
        owned = set(config.objective.metrics) - BUILT_IN_METRICS
        said = f"metrics ({', '.join(sorted(owned))})" if owned else "metrics"
        yield said, owned, set(self.metrics or {})
        yield "strategy", config.strategy.name not in registry.names(), self.strategy is not None

    def origins(self, config: Config) -> dict[str, dict[str, str | None]]:
        """Where the parts that are not built in come from, by the setting that names them."""
        found: dict[str, dict[str, str | None]] = {}
        if not type(config.strategy).__module__.startswith("heroes."):
            found["strategy"] = {"name": config.strategy.name, **plugins.origin(type(config.strategy))}
        for part in ("model", "data", "loss", "sampler"):
            if (brought := getattr(self, part)) is not None:
                found[part] = {
                    "name": getattr(brought, "__name__", type(brought).__name__),
                    **plugins.origin(brought),
                }
        for name, metric in (self.metrics or {}).items():
            found[f"metric {name}"] = {"name": name, **plugins.origin(metric)}
        return found


NOTHING = Own()
