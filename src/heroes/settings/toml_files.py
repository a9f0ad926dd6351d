"""Configuration files: what people write, with the keys that differ, and whole ones, as runs keep them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heroes.errors import ConfigError, did_you_mean
from heroes.settings import toml_text
from heroes.settings.config import Config, flat, parse, to_toml
from heroes.settings.earlier import by_present_names
from heroes.strategies import registry
from heroes.strategies.base import Strategy

Recipes = Mapping[str, Callable[..., Config]]
_COUNT = re.compile(r"# all (\d{1,6}) settings of this run\n")


def load(path: Path, recipes: Recipes, strategy: str | None = None, own: Strategy | None = None) -> Config:
    """A configuration from a TOML file; what it leaves out comes from a recipe, for its strategy.

    The recipe is that of `base`, else that of `experiment`. With a `base` the experiment may have any name,
    and so it may in a whole file, which leaves nothing out. `own` is a strategy of the user's own, which is
    meant where its name is given, or none.
    """
    tree = read(path)
    start = _start(path, tree, recipes)
    section = tree.get("strategy")
    named = section.get("name") if isinstance(section, dict) else None
    if strategy is not None and named not in (None, strategy):
        del tree["strategy"]  # the file's settings are for another strategy
    chosen: str | Strategy | None = strategy or (named if named in registry.names() else None)
    if own is not None and (strategy or named or own.name) == own.name:
        chosen = own
    base = start(strategy=chosen) if start else Config().with_strategy(chosen or registry.DEFAULT)
    return parse(_merged(base.model_dump(mode="python"), tree), type(base.strategy))


def text(config: Config) -> str:
    """A whole file, as a run folder has it.

    Its first line says how many settings follow, so that a file that was cut off can be told from one that
    was written before a setting was invented.
    """
    return f"# all {len(dict(flat(config.model_dump())))} settings of this run\n{to_toml(config)}"


def counted(path: Path) -> int | None:
    """How many settings a file says that it has; None if it does not say."""
    with path.open(encoding="utf-8") as file:
        found = _COUNT.match(file.readline())
    return None if found is None else int(found[1])


def read(path: Path) -> dict[str, Any]:
    """What a file says, as it says it."""
    try:
        return by_present_names(toml_text.read(path))
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {str(path)!r}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {str(path)!r} as TOML: {error}") from None


def _start(path: Path, tree: dict[str, Any], recipes: Recipes) -> Callable[..., Config] | None:
    """The recipe that a file starts from; None if it is whole. Takes `base` out of the tree."""
    whole = len({*dict(flat(tree)), "seed"}) >= (counted(path) or 10**6)  # a Flower app's has no seed
    base = tree.pop("base", None)
    name = tree.get("experiment") if base is None else base
    if isinstance(name, str) and name in recipes:
        return recipes[name]
    if whole and base is None:
        return None
    choices = f"write one of {', '.join(sorted(recipes))}"
    if name is None:
        raise ConfigError(
            f'{str(path)!r} says no experiment: begin it with experiment = "digits" ({choices}), or with '
            'base = "digits" and an experiment = "..." of your own'
        )
    if base is not None:
        raise ConfigError(f"base is {base!r} in {str(path)!r}: {did_you_mean(str(base), recipes)}")
    raise ConfigError(
        f"unknown experiment {name!r} in {str(path)!r}: {did_you_mean(str(name), recipes)}; for a name of "
        'your own say what to start from: base = "digits"'
    )


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
