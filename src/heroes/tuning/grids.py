"""Grids: keys with the values to try, from the command line, and what their combinations are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from heroes.errors import ConfigError
from heroes.settings import toml_text
from heroes.settings.config import Config, parse_setting, written
from heroes.settings.tuned_files import Settings

Grid = Mapping[str, Sequence[Any]]
_OPTIONS = {"seed": "--seeds", "strategy.name": "--strategies"}


def parse_grid(texts: Iterable[str]) -> Grid:
    """The keys and values of `--grid key=a,b,c` options; values as TOML, else as plain words.

    >>> parse_grid(["training.momentum=0.5,0.9", "strategy.blocks=grid,free", "fleet.upload=[1,5],[2,9]"])
    {'training.momentum': [0.5, 0.9], 'strategy.blocks': ['grid', 'free'], 'fleet.upload': [[1, 5], [2, 9]]}
    """
    grid: dict[str, Sequence[Any]] = {}
    for text in texts:
        key, separator, values = (part.strip() for part in text.partition("="))
        if not (separator and key and values.strip(", ")):
            raise ConfigError(
                f"--grid is {text!r}; write a key and its values, such as training.learning_rate=0.03,0.1,0.2"
            )
        if key in _OPTIONS:
            raise ConfigError(f"--grid has {key!r}, which has an option of its own: {_OPTIONS[key]}")
        if key in grid:
            raise ConfigError(f"--grid has {key!r} twice; write all its values in one, with commas between")
        grid[key] = _values(key, values)
    return grid


def _values(key: str, text: str) -> Sequence[Any]:
    try:
        values = toml_text.loads(f"values = [{text}]")["values"]
    except ValueError:
        values = [parse_setting(f"{key}={word}")[1] for word in text.split(",")]
    return list({written(value): value for value in values if value != ""}.values())


def combinations(grid: Grid) -> list[Settings]:
    """Every combination of values, the last key changing fastest; of no keys the one that changes nothing.

    >>> combinations({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def varied(config: Config, settings: Settings) -> Config:
    """The configuration with one combination; an error names the strategy, which may lack a key."""
    try:
        return config.changed(settings)
    except ConfigError as error:
        raise ConfigError(f"{config.strategy.name}: {error}") from None


def parts(settings: Settings) -> list[tuple[str, str]]:
    """Short names and values, to tell combinations apart.

    >>> parts({"training.learning_rate": 0.1, "model.name": "cnn", "data.name": "digits"})
    [('learning_rate', '0.1'), ('model.name', 'cnn'), ('data.name', 'digits')]
    """
    short = [key.rpartition(".")[2] for key in settings]
    names = [key if short.count(name) > 1 else name for key, name in zip(settings, short, strict=True)]
    return [(name, _text(value)) for name, value in zip(names, settings.values(), strict=True)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else written(value)


def label(settings: Settings) -> str:
    """A combination for people.

    >>> label({"training.learning_rate": 0.1, "strategy.tau": 20})
    'learning_rate=0.1 tau=20'
    """
    return " ".join(f"{name}={value}" for name, value in parts(settings))
