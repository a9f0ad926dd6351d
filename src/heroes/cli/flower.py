"""`heroes flower keys`: what a deployment over Flower needs beside the app."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from heroes.cli.app import app
from heroes.cli.console import out_console
from heroes.errors import ConfigError

flower_app = typer.Typer(no_args_is_help=True, help="Deploy a federation with Flower.")
app.add_typer(flower_app, name="flower")


@flower_app.command("keys")
def keys_command(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")],
    nodes: Annotated[int, typer.Option(min=0, help="How many nodes get a pair of keys.")] = 0,
    host: Annotated[list[str] | None, typer.Option(help="A name or address the server goes by; may be repeated.")] = None,
    first: Annotated[int, typer.Option(min=0, help="The first node's number; above 0, only keys of nodes are made.")] = 0,
    days: Annotated[int, typer.Option(min=1, max=36500, help="How long certificates are valid.")] = 825,
    renew: Annotated[
        bool, typer.Option("--renew", help="Only a new server certificate, by the authority that is there.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace keys that the folder already holds.")] = False,
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
    _say(_after_renewal() if renew else [*_copies(numbers, first), "", *_commands(folder, numbers, hosts, first)])


def _flower_keys() -> ModuleType:
    """The room that makes keys; it needs a package that comes with Flower."""
    try:
        from heroes.cli import flower_keys
    except ModuleNotFoundError as error:
        raise ConfigError("making keys needs the package cryptography; say pip install 'heroes-fl[flower]'") from error
    return flower_keys


def _after_renewal() -> list[str]:
    return ["", "copy server.key and server.crt to the server and start its SuperLink again; nodes need nothing new"]


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
        f"    --ssl-ca-certfile {where}/ca.crt --ssl-certfile {where}/server.crt --ssl-keyfile {where}/server.key",
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
        f"    --auth-supernode-private-key {where}/node-{numbers[0]}.key --node-config partition-id={numbers[0]}",
    ]


def _say(lines: list[str]) -> None:
    for line in lines:
        out_console.print(line, markup=False, soft_wrap=True)
