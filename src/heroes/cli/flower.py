"""`heroes flower`: an app for Flower's SuperLink, and the keys of its nodes."""

from __future__ import annotations

import json
import re
import shlex
from importlib import resources
from pathlib import Path
from types import ModuleType
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


@flower.command("keys")
def keys_command(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")],
    nodes: Annotated[int, typer.Option(min=0, help="How many nodes get a pair of keys.")] = 0,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address the server goes by; may be repeated.")
    ] = None,
    first: Annotated[
        int, typer.Option(min=0, help="The first node's number; above 0, only keys of nodes are made.")
    ] = 0,
    days: Annotated[int, typer.Option(min=1, max=36500, help="How long certificates are valid.")] = 825,
    renew: Annotated[
        bool, typer.Option("--renew", help="Only a new server certificate, by the authority that is there.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace keys that the folder already holds.")
    ] = False,
) -> None:
    """Make the certificates and keys of a federation with TLS and node authentication."""
    hosts, numbers = host or [], range(first, first + nodes)
    keys = _flower_keys()
    if renew and (nodes or first):
        raise ConfigError("--renew makes no keys of nodes; leave --nodes and --first out")
    if not renew and not nodes:
        raise ConfigError("--nodes is missing; say how many nodes get keys, for example --nodes 3")
    if renew:
        written = keys.renew_server(folder, hosts, days)
    elif first:
        written = keys.make_nodes(folder, numbers, overwrite)
    else:
        written = keys.make_all(folder, numbers, hosts, days, overwrite)
    _say(["written:", *(f"  {path}" for path in written)])
    _say(
        _after_renewal()
        if renew
        else [*_copies(numbers, first), "", *_commands(folder, numbers, hosts, first)]
    )


def _flower_keys() -> ModuleType:
    """The module that makes keys, which needs a package that comes with Flower."""
    try:
        from heroes.cli import flower_keys
    except ModuleNotFoundError as error:
        raise ConfigError(
            "making keys needs the package cryptography; say pip install 'heroes-fl[flower]'"
        ) from error
    return flower_keys


def _after_renewal() -> list[str]:
    return [
        "",
        "copy server.key and server.crt to the server and start its SuperLink again; nodes need nothing new",
    ]


def _copies(numbers: range, first: int) -> list[str]:
    """What belongs on which machine."""
    some = "ca.crt, server.crt, server.key, and the nodes' .pub files to register them"
    server = [] if first else [f"  the server      {some}"]
    return [
        "",
        "copy, over a channel you trust:",
        *server,
        f"  each node N     ca.crt and node-N.key, N = {numbers[0]} to {numbers[-1]}: its own and no other",
        "  nobody          ca.key: keep it, offline at best; it signs the next server certificate (--renew)",
    ]


def _commands(folder: Path, numbers: range, hosts: list[str], first: int) -> list[str]:
    """The commands that start everything, with the paths of this machine."""
    where, address = shlex.quote(str(folder)), f"{hosts[0] if hosts else '127.0.0.1'}:8000"
    listen = "0.0.0.0" if hosts else "127.0.0.1"
    start = [
        "start the server (one port, 8000, for nodes and for you):",
        f"  flower-superlink --host {listen} --port 8000 --database superlink.db --enable-supernode-auth \\",
        f"    --ssl-ca-certfile {where}/ca.crt --ssl-certfile {where}/server.crt --ssl-keyfile "
        f"{where}/server.key",
        "",
        "name it to the flwr command, in $FLWR_HOME/config.toml (by default ~/.flwr/config.toml):",
        "  [superlink.federation]",
        f'  address = "{address}"',
        f'  root-certificates = "{folder.absolute()}/ca.crt"',
        "",
    ]
    return [
        *([] if first else start),
        "register every node, once:",
        *(f"  flwr supernode register {where}/node-{number}.pub federation" for number in numbers[:3]),
        *(["  ..."] if len(numbers) > 3 else []),
        "",
        f"start node N on its machine (here N = {numbers[0]}):",
        f"  flower-supernode --superlink {address} --root-certificates {where}/ca.crt \\",
        f"    --auth-supernode-private-key {where}/node-{numbers[0]}.key --node-config "
        f"partition-id={numbers[0]}",
    ]


def _say(lines: list[str]) -> None:
    for line in lines:
        out_console.print(line, markup=False, soft_wrap=True)
