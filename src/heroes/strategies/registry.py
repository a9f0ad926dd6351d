"""The strategies by name: the files of this package, and those that other packages bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from heroes import plugins
from heroes.errors import ConfigError
from heroes.strategies.base import Strategy

DEFAULT = "heroes"
PAPER = (DEFAULT, "adp", "fedavg", "flanc", "heterofl")
"""those that the paper compares; commands that take several strategies start from these"""
_NOT_STRATEGIES = ("__init__", "base", "registry")


@cache
def _files() -> tuple[str, ...]:
    found = sorted(
        path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in _NOT_STRATEGIES
    )
    return tuple(sorted(found, key=lambda name: name != DEFAULT))


class _BuiltIn(Mapping[str, type[Strategy]]):
    """The strategies of this package; a file is imported when its strategy is asked for."""

    def __getitem__(self, name: str) -> type[Strategy]:
        if name not in _files():
            raise KeyError(name)
        module = import_module(f"heroes.strategies.{name}")
        return next(kind for kind in _kinds(vars(module).values()) if _name(kind) == name)

    def __iter__(self) -> Iterator[str]:
        return iter(_files())

    def __len__(self) -> int:
        return len(_files())


BUILT_IN = _BuiltIn()


def _kinds(values: object) -> Iterator[type[Strategy]]:
    return (v for v in values if isinstance(v, type) and issubclass(v, Strategy))  # type: ignore[attr-defined]


def _name(kind: type[Strategy]) -> str | None:
    """The name that strategies of this class give themselves."""
    default = kind.model_fields["name"].default
    return default if isinstance(default, str) else None


def names() -> tuple[str, ...]:
    """Every strategy there is: the built-in ones, then those of other packages."""
    return plugins.names("strategy", BUILT_IN)


def find(name: str, key: str = "strategy.name") -> type[Strategy]:
    """The strategy of this name, or a ConfigError that suggests the nearest one."""
    return checked(plugins.find("strategy", key, name, BUILT_IN), name)


def checked(kind: object, name: str) -> type[Strategy]:
    """Return the class if it can be the strategy of this name; else raise a ConfigError."""
    if not (isinstance(kind, type) and issubclass(kind, Strategy)):
        raise ConfigError(
            f"the strategy {name!r} is {kind!r}; it should be a class made from "
            "heroes.strategies.base.Strategy"
        )
    if not name or _name(kind) != name:
        wanted = name or kind.__name__.lower()
        raise ConfigError(
            f"the strategy {wanted!r} calls itself {_name(kind)!r}; it should have the field "
            f'name: Literal["{wanted}"] = "{wanted}"'
        )
    return kind


def own(strategy: object) -> Strategy:
    """A strategy that a user hands over as an object; its name must not be that of another one."""
    if not isinstance(strategy, Strategy):
        raise ConfigError(
            f"strategy is a {type(strategy).__name__}; it should be an object of a class made from "
            "heroes.strategies.base.Strategy, for example strategy=MyStrategy(tau=5)"
        )
    checked(type(strategy), strategy.name)
    if strategy.name in names() and find(strategy.name) is not type(strategy):
        raise ConfigError(
            f"your strategy calls itself {strategy.name!r}, but there is another of that name; choose a name "
            "of its own"
        )
    return strategy


def look(name: str) -> tuple[str, str] | None:
    """Colour and marker of a strategy in plots; None if it is not installed or has none of its own."""
    try:
        kind = find(name)
    except ConfigError:
        return None
    return (kind.colour, kind.marker) if kind.colour else None


def summary(kind: type[Strategy]) -> str:
    """What a strategy is, in a line."""
    return (kind.__doc__ or "").strip().partition("\n")[0]
