"""`heroes watch`: a page that follows runs as they happen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heroes.cli.app import app
from heroes.cli.console import note, out_console
from heroes.report.watching import Watch

_HOST = "Listen here instead of on this machine only; the printed address then has a token."


@app.command("watch")
def watch_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of runs.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 is any free port.")] = 8080,
    host: Annotated[str, typer.Option(help=_HOST)] = "127.0.0.1",
) -> None:
    """Serve a page that follows a run as it happens; Ctrl-C ends it, the run goes on."""
    with Watch(folder, host, port) as server:
        if server.token is not None:
            note("anybody who has this address can watch; the connection is not encrypted")
        out_console.print(server.url, markup=False, soft_wrap=True)
        server.serve_forever(poll_interval=0.2)
