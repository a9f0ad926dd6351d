"""`heroes run` and `heroes resume`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from heroes.cli import launch, options
from heroes.cli.app import app
from heroes.cli.console import err_console, note, print_summary, status
from heroes.cli.progress import rounds_in_progress
from heroes.errors import HeroesError, RankLostError
from heroes.settings.config import parse_setting

if TYPE_CHECKING:
    from heroes.runs.running import Run


Report = Annotated[bool, typer.Option(help="Write report.html into the run folder.")]


@app.command("run")
def run_command(
    experiment: options.Experiment,
    strategy: Annotated[
        str | None, typer.Option(help="The strategy, at the recipe's settings for it.")
    ] = None,
    engine: options.Engine = None,
    seed: Annotated[int | None, typer.Option(help="All randomness comes from it.")] = None,
    rounds: options.Rounds = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; by default a new one under runs/.")
    ] = None,
    settings: options.Settings = None,
    own: options.Own = None,
    track: options.Track = None,
    report: Report = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a federation and write a run folder."""
    _serve_if_not_first()
    named = {"engine.name": engine, "seed": seed, "federation.rounds": rounds}
    config = options.configuration(experiment, strategy, settings, named, own=own)
    options.say_idle(settings, config)
    launch.refuse_many(config.engine.name)
    name = options.folder_name(config.experiment, config.strategy.name, config.seed)
    folder = out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    with status("setting up", quiet):
        from heroes.runs.running import run  # torch is loaded here, where it is needed
    with _resumable(folder), rounds_in_progress(config, quiet) as watching:
        finished = run(config, out=folder, overwrite=overwrite, track=track or (), **watching._asdict())
    _tell(finished, folder, as_json, report, quiet)


@app.command("resume")
def resume_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    engine: options.Engine = None,
    rounds: options.Rounds = None,
    settings: options.Settings = None,
    own: options.Own = None,
    track: options.Track = None,
    report: Report = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Go on with a run that was interrupted, or let a finished one do more rounds.

    Parts of your own come from the file that the run began with; if that has changed or moved, name it again.
    """
    _serve_if_not_first()
    named = {"engine.name": engine, "federation.rounds": rounds, "own.file": own and str(own)}
    changes = dict(parse_setting(text) for text in settings or []) | {
        k: v for k, v in named.items() if v is not None
    }
    with status("setting up", quiet):
        from heroes.runs.configured import brought, extended
        from heroes.runs.running import resume
    config = extended(folder, changes, brought(folder, changes))
    launch.refuse_many(config.engine.name)
    with _resumable(folder), rounds_in_progress(config, quiet) as watching:
        finished = resume(folder, changes, track=track or (), **watching._asdict())
    if finished.mended:
        note(f"the run was finished, but {' and '.join(finished.mended)}; it is written now")
    _tell(finished, folder, as_json, report, quiet)


def _serve_if_not_first() -> None:
    """Under MPI the first process is the one that was asked; the others serve it until it is done."""
    if launch.rank() > 0:
        from heroes.assemble import NOTHING, followed
        from heroes.transport.engines import mpi

        mpi.serve(partial(followed, NOTHING))


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """When interrupted, or when a machine is lost, say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, RankLostError) as error:
        if not (folder / "records.jsonl").exists():
            raise
        how = f"; to go on: heroes resume {folder}"
        if isinstance(error, RankLostError):
            raise RankLostError(f"{error}{how}") from None
        raise click.exceptions.Abort(f"interrupted{how}") from None


def _tell(finished: Run, folder: Path, as_json: bool, report: bool, quiet: bool) -> None:
    if report:
        _write_report(folder, quiet)
    if as_json:
        print(json.dumps({"folder": str(folder), **finished.summary().as_json()}))
    else:
        print_summary(finished.summary(), finished.records, folder)


def _write_report(folder: Path, quiet: bool) -> None:
    """The page beside the run; a missing extra is worth a note, not a failure."""
    from heroes.report import load_run, write_page

    try:
        with status("writing the report", quiet):
            path = write_page([load_run(folder)], folder / "report.html")
    except HeroesError as error:
        note(f"no report: {error}")
        return
    err_console.print(f"report: {path}", markup=False, soft_wrap=True)
