"""What starts a deployed federation: systemd units, or a Dockerfile and a compose file, and a gate.

The SuperLink listens on loopback only, or inside its container: whoever reaches it may start programs on all
machines. Nodes come through the gate, an nginx that lets nothing through but what nodes ask for.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from heroes import __version__

PORT, INNER_PORT = 8000, 8001
ETC, STATE, PROGRAMS = PurePosixPath("/etc/heroes"), PurePosixPath("/var/lib/heroes"), "/opt/heroes/bin"
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "FLWR_HOME": f"{STATE}/flwr",
    "HEROES_DATA": f"{STATE}/data",
}
Nodes = Mapping[str, int]
"""the client number of every node, by name"""


def systemd(nodes: Nodes, host: str, server: bool) -> dict[str, str]:
    """Units and the gate's configuration, by file name; the server's only if asked for."""
    files = {f"heroes-{name}.service": _unit(name, _node(name, nodes[name], host, ETC)) for name in nodes}
    if not server:
        return files
    superlink = _unit("superlink", _superlink("127.0.0.1", ETC))
    return {"heroes-superlink.service": superlink, "gate.conf": _gate("127.0.0.1", ETC), **files}


def docker(nodes: Nodes, host: str, first: int) -> dict[str, str]:
    """A compose file, and with the first nodes the server's part of it, the image and the gate."""
    services = [line for name in nodes for line in _service(name, _node(name, nodes[name], host, ETC))]
    if first:
        return {f"compose-{first}.yaml": _compose(services, nodes)}
    services = [*_service("superlink", _superlink("0.0.0.0", ETC)), *_GATE_SERVICE, *services]
    compose = _compose(services, ["superlink", *nodes])
    return {"Dockerfile": _DOCKERFILE, "gate.conf": _gate("superlink", ETC), "compose.yaml": compose}


def address(host: str) -> str:
    """Where nodes find the server.

    >>> address("fl.example.org"), address("2001:db8::7")
    ('fl.example.org:8000', '[2001:db8::7]:8000')
    """
    return f"[{host}]:{PORT}" if ":" in host else f"{host}:{PORT}"


def node_config(name: str, number: int) -> str:
    """What a node says of itself, as Flower reads it.

    >>> node_config("kitchen", 0)
    'partition-id=0 name="kitchen"'
    """
    return f'partition-id={number} name="{name}"'


def _superlink(listen: str, keys: PurePosixPath) -> list[str]:
    """The SuperLink's command."""
    return [
        *("flower-superlink", "--host", listen, "--port", str(INNER_PORT)),
        *("--database", f"{STATE}/superlink.db", "--enable-supernode-auth"),
        *("--ssl-ca-certfile", f"{keys}/ca.crt"),
        *("--ssl-certfile", f"{keys}/server.crt", "--ssl-keyfile", f"{keys}/server.key"),
    ]


def _node(name: str, number: int, host: str, keys: PurePosixPath) -> list[str]:
    """A SuperNode's command."""
    return [
        *("heroes", "flower", "node", "--superlink", address(host)),
        *("--root-certificates", f"{keys}/ca.crt", "--auth-supernode-private-key", f"{keys}/{name}.key"),
        *("--node-config", node_config(name, number)),
    ]


def _unit(name: str, command: list[str]) -> str:
    program, *words = command
    options = "".join(
        f" \\\n  {word}" if word.startswith("--") else f" {shlex.quote(word)}" for word in words
    )
    environment = "\n".join(f"Environment={key}={value}" for key, value in ENVIRONMENT.items())
    refused = "" if name == "superlink" else _REFUSED
    return f"""# /etc/systemd/system/heroes-{name}.service; then: systemctl enable --now heroes-{name}
[Unit]
Description=heroes federation: {name}
Wants=network-online.target
After=network-online.target

[Service]
User=heroes
StateDirectory=heroes
WorkingDirectory={STATE}
Environment=PATH={PROGRAMS}:/usr/bin:/bin
{environment}
ExecStart={PROGRAMS}/{program}{options}
{refused}Restart=always
RestartSec=15
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes

[Install]
WantedBy=multi-user.target
"""


_REFUSED = "# a node that was killed is refused until the server has noticed, so it tries again and again\n"


def _gate(superlink: str, keys: PurePosixPath) -> str:
    return f"""# /etc/nginx/conf.d/heroes.conf: what nodes ask for comes in, and nothing else
server {{
    listen {PORT} ssl;
    ssl_certificate {keys}/server.crt;
    ssl_certificate_key {keys}/server.key;
    client_max_body_size 0;
    proxy_request_buffering off;
    proxy_read_timeout 300s;

    location /v1/fleet/ {{
        proxy_pass https://{superlink}:{INNER_PORT};
        proxy_ssl_trusted_certificate {keys}/ca.crt;
        proxy_ssl_name localhost;
        proxy_ssl_verify on;
    }}

    location / {{
        return 403;
    }}
}}
"""


_DOCKERFILE = f"""# one image for the server and for nodes
# another image with Python 3.11 or newer and pip serves as well, such as a Jetson's
ARG BASE="python:3.12-slim"
FROM $BASE
ARG HEROES="heroes-fl[node]=={__version__}"
# where to look for other builds of PyTorch, such as those for the CPU alone
ARG PIP_EXTRA_INDEX_URL=""
RUN pip install --no-cache-dir "$HEROES"
# whoever runs it may write there
RUN mkdir -m 1777 {STATE}
ENV {" ".join(f"{key}={value}" for key, value in ENVIRONMENT.items())}
WORKDIR {STATE}
USER 1000:1000
"""

_GATE_SERVICE = (
    "  gate:",
    "    image: ${HEROES_GATE:-nginx:stable}",
    "    profiles: [superlink]",
    "    restart: unless-stopped",
    "    depends_on: [superlink]",
    f'    ports: ["{PORT}:{PORT}"]',
    "    volumes:",
    "      - ./gate.conf:/etc/nginx/conf.d/default.conf:ro",
    *(f"      - ../{name}:{ETC}/{name}:ro" for name in ("ca.crt", "server.crt", "server.key")),
)


def _service(name: str, command: list[str]) -> list[str]:
    """A service of the compose file, which starts only where its profile is asked for."""
    server = name == "superlink"
    keys = ["ca.crt", "server.crt", "server.key"] if server else ["ca.crt", f"{name}.key"]
    return [
        f"  {name}:",
        "    <<: *heroes",
        f"    profiles: [{name}]",
        f"    command: {json.dumps(command)}",
        # for flwr, on this machine alone
        *([f'    ports: ["127.0.0.1:{INNER_PORT}:{INNER_PORT}"]'] if server else []),
        "    volumes:",
        f"      - {name}:{STATE}",
        *(f"      - ../{key}:{ETC}/{key}:ro" for key in keys),
    ]


def _compose(services: Iterable[str], volumes: Iterable[str]) -> str:
    head = f"""# on each machine its own part: docker compose --profile superlink up -d, or --profile NODE
# keys are their owner's only: say who that is by HEROES_USER=$(id -u):$(id -g)
name: heroes
x-heroes: &heroes
  image: heroes:{__version__}
  build: .
  user: ${{HEROES_USER:-1000:1000}}
  init: true
  restart: unless-stopped
  stop_grace_period: 30s
services:
"""
    return head + "\n".join([*services, "volumes:", *(f"  {name}:" for name in volumes)]) + "\n"
