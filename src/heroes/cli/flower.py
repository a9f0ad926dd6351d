"""`heroes flower init`: an app for Flower's SuperLink."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.console import out_console
from heroes.cli.helping import PlainGroup
from heroes.errors import ConfigError
from heroes.settings.config import Config, parse_setting
from heroes.settings.toml_files import text as whole_file

flower = typer.Typer(cls=PlainGroup, help="Run on Flower's SuperLink and its nodes.", no_args_is_help=True)
app.add_typer(flower, name="flower")


@flower.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the app is written.")],
    experiment: Annotated[
        str, typer.Option(help="An experiment (see `heroes list`) or the path of a TOML file.")
    ] = "digits",
    strategy: Annotated[
        str | None, typer.Option(help="The strategy, at the recipe's settings for it.")
    ] = None,
    settings: options.Settings = None,
    own: Annotated[bool, typer.Option("--own", help="With a file for a model and data of your own.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an app that the folder already holds.")] = False,
) -> None:
    """Write a Flower app that trains this experiment: `flwr run DIR SUPERLINK` starts it."""
    given = dict(parse_setting(text) for text in settings or [])
    named = {"engine.name": "flower", "engine.clock": given.get("engine.clock", "wall")}
    if own:
        named["experiment"] = given.get("experiment", folder.resolve().name)
    config = options.configuration(experiment, strategy, settings, named)
    if config.privacy.noise and "privacy.source" not in given:
        config = config.changed({"privacy.source": "system"})  # nodes could foresee what comes from a seed
    files = {
        "pyproject.toml": _project(folder, config, "own_app" if own else "heroes.flower_app"),
        "config.toml": _settings(config, seeded="seed" in given),
        "README.md": _readme(config, own),
        **({"own_parts.py": _template("own_parts.py"), "own_app.py": _OWN_APP} if own else {}),
    }
    taken = [name for name in files if (folder / name).exists()]
    if taken and not overwrite:
        raise ConfigError(
            f"{str(folder / taken[0])!r} is there already; choose another folder or say --overwrite"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    out_console.print(
        f"{folder}: a Flower app; start it with flwr run {folder} SUPERLINK", markup=False, soft_wrap=True
    )


def _settings(config: Config, seeded: bool) -> str:
    """The configuration. The app goes to every node, so a seed that nobody asked for is not in it."""
    text = whole_file(config)
    if seeded or config.seed != Config().seed:
        return text
    left_out = "# no seed: nodes get this file, so the server draws one and keeps it in the run folder"
    return text.replace(f"seed = {config.seed}", left_out, 1)


def _project(folder: Path, config: Config, module: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "app"
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = {json.dumps(name)}
version = "1.0.0"
description = {json.dumps(f"heroes: {config.experiment} by {config.strategy.name}")}
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<2"]  # heroes-fl[flower] must be there already, on every machine

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "heroes"

[tool.flwr.app.components]
serverapp = "{module}:server_app"
clientapp = "{module}:client_app"

[tool.flwr.app.config]
config = "config.toml"  # all settings of heroes
out = {json.dumps(f"runs/{name}")}  # the run folder, on the SuperLink's machine; a run that it holds goes on
rounds = {config.federation.rounds}  # instead of federation.rounds
"""


def _template(name: str) -> str:
    return resources.files("heroes.cli.templates").joinpath(name).read_text(encoding="utf-8")


_OWN_APP = '''"""What Flower starts: the parts in own_parts.py as an app."""

import own_parts

from heroes.flower_app import Parts

parts = Parts.of(own_parts)
server_app = parts.server_app()
client_app = parts.client_app()
'''


def _readme(config: Config, own: bool) -> str:
    last = config.federation.clients - 1
    needs = "" if own else " and the data set"
    mine = (
        "\nown_parts.py has the model and the data: put yours in their place. Nodes get it with the app.\n"
        if own
        else ""
    )
    return f"""# {config.experiment} by {config.strategy.name}, on Flower

Every machine needs `pip install 'heroes-fl[flower]'`{needs}. `federation.clients` in config.toml is
{config.federation.clients}: start a SuperNode for each client, with a partition-id from 0 to {last}, which is
its part of the data.
{mine}
    flower-superlink --insecure
    flower-supernode --insecure --superlink ADDRESS:8000 --node-config "partition-id=0"
    flwr run . SUPERLINK --stream

A run that was interrupted goes on when it is started again with the same `out`. More rounds:
`--run-config "rounds=50"`. A node with `model-out="/path/model.safetensors" width=2` in its node
configuration gets the final model at that width.
See docs/engines.md of heroes for clocks, keys and certificates.
"""
