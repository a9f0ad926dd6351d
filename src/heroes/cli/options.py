"""Options that several commands take, and the configuration they add up to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import typer

from heroes.cli.console import note
from heroes.errors import ConfigError
from heroes.settings import tuned_files
from heroes.settings.config import Config, parse_setting
from heroes.settings.recipes import EXPERIMENTS, recipe
from heroes.settings.sections import LEVELS
from heroes.settings.toml_files import load, read
from heroes.strategies import registry
from heroes.strategies.base import Strategy

Experiment = Annotated[
    str, typer.Argument(help="An experiment (see `heroes list`) or the path of a TOML file.")
]
Engine = Annotated[str | None, typer.Option(help="How tasks reach clients.")]
Rounds = Annotated[int | None, typer.Option(help="Stop after this many rounds.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change any key; may be repeated."),
]
Strategies = Annotated[str, typer.Option(help="The strategies, with commas between.")]
Grid = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=A,B,…", help="Try a key at these values; several keys: every combination."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Who hears of every round: csv, live (for heroes watch), tensorboard, mlflow, wandb, or an "
        "installed one; may be repeated.",
    ),
]
Own = Annotated[
    Path | None,
    typer.Option("--own", metavar="FILE", help="A Python file with parts of your own: build, data, loss, …"),
]
Overwrite = Annotated[bool, typer.Option(help="Replace a run that the folder already holds.")]
Quiet = Annotated[bool, typer.Option(help="No progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]

_LONGEST_FOLDER = 120  # bytes of a name; file systems take 255


def configuration(
    experiment: str,
    strategy: str | None,
    settings: list[str] | None,
    named: Mapping[str, Any],
    tuned: Path | None = None,
    own: Path | None = None,
) -> Config:
    """The configuration asked for by an experiment or a file, a strategy, `--set` and other options.

    `tuned` is a file of tuned settings, in place of the experiment's own where it has some; `own` is a file
    with parts of the user's own, which the configuration then names as such.
    """
    given = dict(parse_setting(text) for text in settings or [])
    strategy = strategy or given.pop("strategy.name", None)
    path = Path(experiment) if Path(experiment).suffix == ".toml" or Path(experiment).is_file() else None
    file = own_file(own, given, path)
    mine = None if file is None else own_strategy(file)
    if path is not None:
        config = load(path, EXPERIMENTS, strategy, mine)
    else:
        config = recipe(experiment, mine if mine and strategy in (None, mine.name) else strategy)
    if own is not None:  # this one, as it is now
        config = config.changed({"own.file": str(own), "own.digest": None})
    if tuned is not None:
        known = tuned_files.read(tuned, None if mine is None else mine.name)
        config = tuned_files.applied(config, tuned, known)
    config = config.changed(given | {key: value for key, value in named.items() if value is not None})
    return config if file is None else _with_own(config)


def say_idle(settings: list[str] | None, config: Config) -> None:
    """A note of every key of `--set` that another partition than the configured one would read."""
    given, partition = dict(parse_setting(text) for text in settings or []), config.data.partition
    for key in dict.fromkeys(LEVELS.values()):
        if f"data.{key}" in given and LEVELS.get(partition) != key:
            readers = " or ".join(name for name, level in LEVELS.items() if level == key)
            note(f"data.{key} has no part here: data.partition is {partition!r}, and it is for {readers}")


def own_file(own: Path | None, given: Mapping[str, Any], path: Path | None) -> Path | None:
    """The file with parts of the user's own: by its option, by `--set own.file`, or by a TOML file."""
    if own is not None:
        return own
    section = {} if path is None else read(path).get("own", {})
    file = given.get("own.file", section.get("file") if isinstance(section, dict) else None)
    return Path(file) if isinstance(file, str) and file != "none" else None


def own_strategy(file: Path) -> Strategy | None:
    """The strategy in a file with parts of the user's own, if it has one."""
    from heroes.assemble.own_file import read  # torch is loaded here, where it is needed

    return read(file)[0].strategy


def _with_own(config: Config) -> Config:
    """The configuration with the parts of its file marked as the user's own, as a run folder has it."""
    from heroes.assemble import NOTHING, with_file

    return with_file(NOTHING, config.model_dump()).named(config)


def folder_name(*parts: object) -> str:
    """One folder name made of these names, wherever they come from: letters, digits, dots, dashes.

    If that changes or shortens them, a checksum keeps different names apart.

    >>> folder_name("digits", "heroes", 0), folder_name("x/../../y", 0)
    ('digits-heroes-0', 'x-y-0-e8df49f0')
    """
    name = "-".join(map(str, parts))
    safe = re.sub(r"(?:[^\w.-]|\.{2,})+", "-", name).lstrip(".-")
    safe = safe.encode()[:_LONGEST_FOLDER].decode(errors="ignore")
    return safe if safe == name else f"{safe}-{crc32(name.encode(errors='backslashreplace')):08x}"


def strategy_names(text: str, own: Path | None = None) -> list[str]:
    """The strategies in a text with commas between, each once; an error if there is no such strategy.

    One of the user's own, from the file `own`, is known too.
    """
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    mine = None if own is None else own_strategy(own)
    for name in names:
        if mine is None or name != mine.name:
            registry.find(name, "--strategies")
    return names


def seeds(text: str | None) -> list[int] | None:
    """The seeds in a text with commas between, each once; None for no text."""
    if text is None:
        return None
    return list(dict.fromkeys(int(number(part, "--seeds", whole=True)) for part in text.split(",")))


def number(text: str, option: str, whole: bool = False) -> float:
    """A number of an option that takes several."""
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"{option} has {text!r}; write {kind} with commas between") from None
