"""Options that several commands take, and the configuration they add up to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import typer

from heroes.settings.config import Config, load, parse_setting
from heroes.settings.recipes import recipe

Experiment = Annotated[
    str, typer.Argument(help="An experiment (see `heroes list`) or the path of a TOML file.")
]
Engine = Annotated[str | None, typer.Option(help="How tasks reach clients.")]
Rounds = Annotated[int | None, typer.Option(help="Stop after this many rounds.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change any key; may be repeated."),
]
Track = Annotated[list[str] | None, typer.Option(help="Who hears of every round: csv, or an installed one.")]
Overwrite = Annotated[bool, typer.Option(help="Replace a run that the folder already holds.")]
Quiet = Annotated[bool, typer.Option(help="No progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]

_LONGEST_FOLDER = 120  # bytes of a name; file systems take 255


def configuration(
    experiment: str, strategy: str | None, settings: list[str] | None, named: Mapping[str, Any]
) -> Config:
    """The configuration asked for by an experiment or a file, a strategy, `--set` and other options."""
    given = dict(parse_setting(text) for text in settings or [])
    strategy = strategy or given.pop("strategy.name", None)
    path = Path(experiment)
    config = (
        load(path, recipe, strategy)
        if path.suffix == ".toml" or path.is_file()
        else recipe(experiment, strategy)
    )
    return config.changed(given | {key: value for key, value in named.items() if value is not None})


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
