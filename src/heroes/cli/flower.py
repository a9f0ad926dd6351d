"""`heroes flower`: an app for Flower's SuperLink."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.console import out_console
from heroes.config import Config, parse_setting, to_toml
from heroes.errors import ConfigError

flower = typer.Typer(help="Run on Flower's SuperLink and its nodes.", no_args_is_help=True)
app.add_typer(flower, name="flower")
FILES = ("pyproject.toml", "config.toml", "README.md")


@flower.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the app is written.")],
    task: Annotated[str, typer.Option(help="A task (see `heroes list`) or the path of a TOML file.")] = "digits",
    strategy: Annotated[str | None, typer.Option(help="The scheme, at the recipe's settings for it.")] = None,
    settings: options.Settings = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an app that the folder already holds.")] = False,
) -> None:
    """Write a Flower app that trains this task: `flwr run DIR SUPERLINK` starts it."""
    given = dict(parse_setting(text) for text in settings or [])
    named = {"engine.name": "flower", "engine.clock": given.get("engine.clock", "wall")}
    config = options.configuration(task, strategy, settings, named)
    taken = [name for name in FILES if (folder / name).exists()]
    if taken and not overwrite:
        raise ConfigError(f"{str(folder / taken[0])!r} is there already; choose another folder or say --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(FILES, (_project(folder, config), to_toml(config), _readme(config)), strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    out_console.print(f"{folder}: a Flower app; start it with flwr run {folder} SUPERLINK", markup=False, soft_wrap=True)


def _project(folder: Path, config: Config) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "app"
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = {json.dumps(name)}
version = "1.0.0"
description = {json.dumps(f"heroes: {config.task} by {config.strategy.name}")}
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<2"]  # heroes-fl[flower] must be there already, on every machine

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "heroes"

[tool.flwr.app.components]
serverapp = "heroes.flower_app:server_app"
clientapp = "heroes.flower_app:client_app"

[tool.flwr.app.config]
config = "config.toml"  # all settings of heroes
out = {json.dumps(f"runs/{name}")}  # the run folder, on the SuperLink's machine; a run that it holds goes on
rounds = {config.federation.rounds}  # instead of federation.rounds
"""


def _readme(config: Config) -> str:
    last = config.federation.clients - 1
    return f"""# {config.task} by {config.strategy.name}, on Flower

Every machine needs `pip install 'heroes-fl[flower]'` and the data set. `federation.clients` in config.toml is
{config.federation.clients}: start a SuperNode for each client, with a partition-id from 0 to {last}: its part of the data.

    flower-superlink --insecure
    flower-supernode --insecure --superlink ADDRESS:8000 --node-config "partition-id=0"
    flwr run . SUPERLINK --stream

A run that was interrupted goes on when it is started again with the same `out`. More rounds: `--run-config "rounds=50"`.
A node with `model-out="/path/model.safetensors" width=2` in its node configuration gets the final model at that width.
See docs/engines.md of heroes for clocks, keys and certificates.
"""
