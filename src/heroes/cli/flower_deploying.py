"""`heroes flower keys`: the keys of a federation, what starts it, and what to type."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from heroes.cli import flower_units as units
from heroes.cli.console import out_console
from heroes.cli.flower import flower
from heroes.errors import ConfigError
from heroes.files import write_whole

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TAKEN = ("ca", "server", "superlink", "gate")  # other files and services are called so


@flower.command("keys")
def keys_command(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")],
    nodes: Annotated[int, typer.Option(min=0, help="How many nodes get a pair of keys.")] = 0,
    name: Annotated[
        list[str] | None, typer.Option(help="A node's name, instead of node-0, …; may be repeated.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address the server goes by; may be repeated.")
    ] = None,
    first: Annotated[
        int, typer.Option(min=0, help="The first node's number; above 0, only keys of nodes are made.")
    ] = 0,
    days: Annotated[int, typer.Option(min=1, max=36500, help="How long certificates are valid.")] = 825,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Also units for the server and for every node.")
    ] = False,
    docker: Annotated[bool, typer.Option("--docker", help="Also a Dockerfile and a compose file.")] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Only a new server certificate, by the authority that is there.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace keys that the folder already holds.")
    ] = False,
) -> None:
    """Make the certificates and keys of a federation with TLS and node authentication, and what starts it."""
    hosts, keys = host or [], _flower_keys()
    if renew:
        if nodes or first or name or systemd or docker:
            raise ConfigError("--renew makes no keys of nodes and no units; give --host and --days only")
        _say(["written:", *(f"  {path}" for path in keys.renew_server(folder, hosts, days))])
        _say(_after_renewal())
        return
    names = _named(name or [], nodes, first)
    files = _starters(names, hosts, first, systemd, docker)
    _refuse_existing(folder, files, overwrite)
    if first:
        written = keys.make_nodes(folder, list(names), overwrite)
    else:
        written = keys.make_all(folder, list(names), hosts, days, overwrite)
    _say(["written:", *(f"  {path}" for path in [*written, *_written(folder, files)])])
    _say([*_copies(names, first, files), "", *_commands(folder, names, hosts, first, files)])


@flower.command("node", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def node_command(context: typer.Context) -> None:
    """Run a node. All arguments are those of flower-supernode; it imports once, not for every message."""
    if not hasattr(os, "fork"):
        raise ConfigError("this system cannot fork a process; use flower-supernode with the same arguments")
    try:
        import heroes.flower_app  # noqa: F401 (what every task needs)
        from heroes.transport.engines.flower import forking
    except ImportError as error:
        raise ConfigError(
            f"Flower is not there, or not as heroes knows it ({error}): pip install 'heroes-fl[node]', or "
            "use flower-supernode with the same arguments"
        ) from None
    raise typer.Exit(forking.serve(context.args))


def _flower_keys() -> ModuleType:
    """The module that makes keys, which needs a package that comes with Flower."""
    try:
        from heroes.cli import flower_keys
    except ModuleNotFoundError as error:
        raise ConfigError(
            "making keys needs the package cryptography; say pip install 'heroes-fl[flower]'"
        ) from error
    return flower_keys


def _named(names: list[str], nodes: int, first: int) -> dict[str, int]:
    """The client number of every node, by name."""
    if not names and not nodes:
        raise ConfigError("--nodes is missing or 0; say how many nodes get keys, for example --nodes 3")
    if names and nodes not in (0, len(names)):
        raise ConfigError(f"--nodes is {nodes}, but there are {len(names)} names; leave --nodes out")
    for name in names:
        if not _NAME.fullmatch(name) or name in _TAKEN:
            raise ConfigError(
                f"--name {name!r} cannot be a node's: use small letters, digits and hyphens, at most 63, and "
                f"none of {', '.join(_TAKEN)}"
            )
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"--name {twice[0]!r} is given twice; every node needs a name of its own")
    numbers = range(first, first + (nodes or len(names)))
    return dict(zip(names or [f"node-{number}" for number in numbers], numbers, strict=True))


def _starters(
    names: Mapping[str, int], hosts: list[str], first: int, systemd: bool, docker: bool
) -> dict[str, str]:
    """The files that start the federation, by their paths in the folder."""
    if not (systemd or docker):
        return {}
    if not hosts:
        asked = "--systemd" if systemd else "--docker"
        raise ConfigError(f"{asked} needs --host: by it nodes find the server, for example fl.example.org")
    found = {"systemd": units.systemd(names, hosts[0], server=not first)} if systemd else {}
    found |= {"docker": units.docker(names, hosts[0], first)} if docker else {}
    return {f"{kind}/{name}": text for kind, files in found.items() for name, text in files.items()}


def _refuse_existing(folder: Path, files: Mapping[str, str], overwrite: bool) -> None:
    there = [path for path in files if (folder / path).exists()]
    if there and not overwrite:
        raise ConfigError(f"{str(folder / there[0])!r} is there already; move it away or say --overwrite")


def _written(folder: Path, files: Mapping[str, str]) -> list[Path]:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / path, text.encode())
    return [folder / path for path in files]


def _after_renewal() -> list[str]:
    return [
        "",
        "copy server.key and server.crt to the server and start its SuperLink again; nodes need nothing new",
    ]


def _copies(names: Mapping[str, int], first: int, files: Mapping[str, str]) -> list[str]:
    """What belongs on which machine."""
    some = "ca.crt, server.crt, server.key, and the nodes' .pub files to register them"
    server = [] if first else [f"  the server      {some}"]
    known = list(names)
    which = " or ".join(known) if len(known) < 3 else f"{known[0]}, {known[1]}, …"
    guides = ["", "docs/deployment.md says where the files in systemd and docker belong"] if files else []
    return [
        "",
        "copy, over a channel you trust:",
        *server,
        f"  each node       ca.crt and NODE.key, NODE = {which}: its own and no other",
        "  nobody          ca.key: keep it, offline at best; it signs the next server certificate (--renew)",
        *guides,
    ]


def _commands(
    folder: Path, names: Mapping[str, int], hosts: list[str], first: int, files: Mapping[str, str]
) -> list[str]:
    """The commands that start everything: by the files written, or with the paths of this machine."""
    if files:
        return _started_by(folder, names, first, files)
    where, address = shlex.quote(str(folder)), units.address(hosts[0] if hosts else "127.0.0.1")
    listen = "0.0.0.0" if hosts else "127.0.0.1"
    one, number = next(iter(names.items()))
    start = [
        "start the server (one port, 8000, for nodes and for you):",
        f"  flower-superlink --host {listen} --port 8000 --database superlink.db --enable-supernode-auth \\",
        f"    --ssl-ca-certfile {where}/ca.crt --ssl-certfile {where}/server.crt --ssl-keyfile "
        f"{where}/server.key",
        "",
        *_named_to_flwr(address, folder),
    ]
    return [
        *([] if first else start),
        *_registered(folder, names),
        f"start each node on its machine (here {one}):",
        f"  heroes flower node --superlink {address} --root-certificates {where}/ca.crt \\",
        f"    --auth-supernode-private-key {where}/{one}.key \\",
        f"    --node-config {shlex.quote(units.node_config(one, number))}",
    ]


def _started_by(folder: Path, names: Mapping[str, int], first: int, files: Mapping[str, str]) -> list[str]:
    """What to type where units or a compose file start everything: the SuperLink is behind its gate."""
    one, ways = next(iter(names)), sorted({path.partition("/")[0] for path in files})
    compose = f"docker compose -f compose{f'-{first}' if first else ''}.yaml"
    commands = {
        "systemd": (
            "systemctl enable --now heroes-superlink && systemctl reload nginx",
            f"systemctl enable --now heroes-{one}",
        ),
        "docker": (
            f"{compose} --profile superlink up -d --build",
            f"{compose} --profile {one} up -d --build",
        ),
    }
    inner = f"127.0.0.1:{units.INNER_PORT}"
    server = [
        f"start the server (nodes come in by port {units.PORT}; only the server itself reaches {inner}):",
        *(f"  {commands[way][0]}" for way in ways),
        "",
        *_named_to_flwr(inner, folder),
    ]
    return [
        *([] if first else server),
        *_registered(folder, names),
        f"start each node on its machine (here {one}):",
        *(f"  {commands[way][1]}" for way in ways),
    ]


def _named_to_flwr(address: str, folder: Path) -> list[str]:
    return [
        "name it to the flwr command, in $FLWR_HOME/config.toml (by default ~/.flwr/config.toml):",
        "  [superlink.federation]",
        f'  address = "{address}"',
        f'  root-certificates = "{folder.absolute()}/ca.crt"',
        "",
    ]


def _registered(folder: Path, names: Mapping[str, int]) -> list[str]:
    return [
        "register every node, once:",
        *(
            f"  flwr supernode register {shlex.quote(str(folder))}/{name}.pub federation"
            for name in list(names)[:3]
        ),
        *(["  ..."] if len(names) > 3 else []),
        "",
    ]


def _say(lines: list[str]) -> None:
    for line in lines:
        out_console.print(line, markup=False, soft_wrap=True)
