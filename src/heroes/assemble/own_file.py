"""Parts of your own from a file: `heroes run --own parts.py` reads it, and so does an app for Flower.

The file has any of `build(width)`, `data()`, `classes`, `loss`, `metrics`, `strategy` and `sampler`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial, update_wrapper
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import torch

from heroes import plugins
from heroes.assemble.own import Own, OwnData
from heroes.client.losses import Function
from heroes.contracts import Sampler
from heroes.data import Dataset, Examples, FederatedData, Shares, WholeShares
from heroes.errors import ConfigError, DataError, HeroesError, said
from heroes.models.family import Build
from heroes.settings.config import Config
from heroes.strategies import registry
from heroes.strategies.base import Strategy

Data = Callable[..., Any]


@dataclass(frozen=True)
class OwnParts:
    """Parts of your own, as a file or an app brings them; the configuration names what is not given.

    `model` is `build(width) -> nn.Module`. `data()` gives (train, test), a `Dataset` or `FederatedData`;
    `data(client)` gives the training examples of one client, and `data(None)` the test examples. With data
    by client and a named model, say how many `classes` there are. `strategy`, `loss`, `metrics` and `sampler`
    are as in `heroes.run`.
    """

    model: Build | None = None
    data: Data | None = None
    classes: int | None = None
    strategy: Strategy | None = None
    loss: Function | None = None
    metrics: Mapping[str, Any] | None = None
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        for name, part in (("build", self.model), ("data", self.data)):
            if part is not None and not callable(part):
                raise ConfigError(f"{name} is a {type(part).__name__}; it should be a function")
        if self.classes is not None and (type(self.classes) is not int or self.classes < 1):
            raise ConfigError(f"classes is {self.classes!r}; it should be a whole number above 0")
        if self.strategy is not None:
            registry.own(self.strategy)
        if self.by_client and self.model is None and self.classes is None:
            raise ConfigError(
                "data of your own needs a model of your own, or classes=...: a node may not have seen them "
                "all"
            )

    @classmethod
    def of(cls, module: ModuleType) -> Self:
        """The parts that a module has, by their names or all together as `parts`."""
        there = getattr(module, "parts", None)
        if isinstance(there, OwnParts):
            return cls(**{field.name: getattr(there, field.name) for field in fields(OwnParts)})
        names = ["build" if field.name == "model" else field.name for field in fields(OwnParts)]
        found = [getattr(module, name, None) for name in names]
        if all(part is None for part in found):
            raise ConfigError(
                f"{module.__file__!r} has no parts of your own: it should have one or more of "
                f"{', '.join(names)}"
            )
        try:
            return cls(*found)
        except ConfigError as error:
            raise ConfigError(f"{module.__file__!r}: {error}") from None

    @property
    def by_client(self) -> bool:
        """Whether data is asked for client by client."""
        return self.data is not None and bool(inspect.signature(self.data).parameters)

    def here(self, config: Config, client: int | None) -> OwnData | None:
        """Data on a machine that has one client's, or only the test examples (None); or all of it."""
        if self.data is None:
            return None
        if not self.by_client:
            return self._whole()
        found = self._examples(client)
        return FederatedData(found, found, WholeShares(config.federation.clients, len(found)), self.classes)

    def together(self, config: Config) -> OwnData:
        """Everybody's data on this machine."""
        if not self.by_client:
            return self._whole()
        clients = [self._examples(client) for client in range(config.federation.clients)]
        return _gathered(clients, self._examples(None), self.classes)

    def _whole(self) -> OwnData:
        found = self._called()
        if isinstance(found, tuple) and [type(part) for part in found] == [Examples, Examples]:
            found = Dataset(*found)
        if self.classes is not None and isinstance(found, Dataset):
            found = replace(found, class_names=tuple(str(label) for label in range(self.classes)))
        return found  # type: ignore[no-any-return]  # it is checked where it is shared out

    def _examples(self, client: int | None) -> Examples:
        found = self._called(client)
        if not isinstance(found, Examples):
            raise ConfigError(f"data({client}) gave a {type(found).__name__}; it should give heroes.Examples")
        return found

    def _called(self, *client: int | None) -> Any:
        assert self.data is not None
        try:
            return self.data(*client)
        except HeroesError:
            raise
        except Exception as error:  # the user's function can fail in any way
            asked = f"data({', '.join(map(str, client))})"
            line = plugins.line_of(error, inspect.getsourcefile(self.data) or "")
            raise DataError(f"{asked} of your own failed{line}: {said(error)}") from error


def _gathered(clients: list[Examples], test: Examples, classes: int | None) -> FederatedData:
    """Examples that every client brings, in one place, where each still owns its own."""
    first = clients[0]
    for number, each in enumerate(clients):
        if each.inputs.shape[1:] != first.inputs.shape[1:] or each.transform != first.transform:
            raise DataError(
                f"data({number}) gave inputs of shape {tuple(each.inputs.shape[1:])}, data(0) of "
                f"{tuple(first.inputs.shape[1:])}; shape and transform should be the same for all clients"
            )
    train = Examples(
        torch.cat([each.inputs for each in clients]),
        torch.cat([each.targets for each in clients]),
        first.transform,
    )
    ends = np.cumsum([0, *map(len, clients)])
    return FederatedData(train, test, Shares(np.arange(len(train)), ends), classes)


def read(path: Path) -> tuple[OwnParts, str]:
    """The parts in a file as it is now, and its digest."""
    module = plugins.module_at(path.expanduser().absolute())
    return OwnParts.of(module), plugins.digest_of(module)


def with_file(own: Own, settings: Mapping[str, Any]) -> Own:
    """The parts that the caller brings; else those of the file that a configuration names, if it names one.

    A strategy in the file is meant if the configuration calls it by its name.
    """
    file, digest = (_said(settings, "own", key) for key in ("file", "digest"))
    if file is None or own.anything:
        return own
    path = Path(file).expanduser().absolute()
    module = plugins.module_at(path, digest)
    parts = OwnParts.of(module)
    named = parts.strategy is not None and parts.strategy.name == _said(settings, "strategy", "name")
    asked = None if parts.data is None else update_wrapper(partial(OwnParts.together, parts), parts.data)
    return Own(
        parts.model,
        asked,
        parts.strategy if named else None,
        parts.loss,
        parts.metrics,
        parts.sampler,
        str(path),
        plugins.digest_of(module),
    )


def _said(settings: Mapping[str, Any], section: str, key: str) -> str | None:
    inner = settings.get(section)
    value = inner.get(key) if isinstance(inner, Mapping) else None
    return value if isinstance(value, str) and value != "none" else None
