"""Files of tuned settings: for each strategy the keys, of any section, that suit it on one experiment.

`heroes tune` writes them; `heroes compare --settings` and the recipes read them. The recipes' own lie in the
folder `tuned` beside this module, one for each experiment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from heroes.errors import ConfigError
from heroes.settings import toml_text
from heroes.settings.config import Config, flat, written
from heroes.strategies import registry

Settings = Mapping[str, Any]
"""keys with dots, and their values"""
Tuned = Mapping[str, Settings]
"""the settings of every strategy, by its name"""

_SHIPPED = Path(__file__).with_name("tuned")


def read(path: Path, own: str | None = None) -> Tuned:
    """The settings in a file; an error says what is wrong with it. `own` is a strategy of the user's own."""
    try:
        tree = toml_text.read(path)
    except FileNotFoundError:
        raise ConfigError(f"there is no file of settings {str(path)!r}; heroes tune writes one") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {str(path)!r} as TOML: {error}") from None
    for strategy, section in tree.items():
        if not isinstance(section, dict):
            raise ConfigError(
                f"{str(path)!r} has {strategy!r} outside of a section; it should have a section for each "
                'strategy, such as [fedavg] with "training.learning_rate" = 0.1'
            )
        if strategy != own:
            registry.find(strategy, f"a section of {str(path)!r}")
    return {strategy: dict(flat(section)) for strategy, section in tree.items()}


@cache
def shipped(experiment: str) -> Tuned:
    """The settings that come with an experiment; none where it has no file."""
    path = _SHIPPED / f"{experiment}.toml"
    return read(path) if experiment.isidentifier() and path.is_file() else {}


def provenance(experiment: str) -> str:
    """Where an experiment's settings come from, as the comment on top of their file says."""
    path = _SHIPPED / f"{experiment}.toml"
    if not path.is_file():
        return "The recipe's, none tuned."
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = [line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    return " ".join(comment) or "Not said."


def applied(config: Config, path: Path, given: Tuned) -> Config:
    """The configuration with what a file has for its strategy, which may be nothing."""
    try:
        return config.changed(given.get(config.strategy.name, {}))
    except ConfigError as error:
        raise ConfigError(f"[{config.strategy.name}] in {str(path)!r}: {error}") from None


def text(tuned: Tuned, comment: str) -> str:
    """What a file holds: the comment, then a section for each strategy."""
    return "\n".join([*(f"# {line}".rstrip() for line in comment.splitlines()), *_sections(tuned)]) + "\n"


def _sections(tuned: Tuned) -> Iterator[str]:
    for strategy, settings in tuned.items():
        yield f"\n[{strategy}]"
        yield from (f"{json.dumps(key)} = {written(value)}" for key, value in settings.items())
