"""The command line. The only room that prints.

Exit codes: 0 done, 1 failure, 2 the user's mistake, 130 interrupted. What a command was asked for goes to standard output,
progress and errors to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from heroes import __version__
from heroes.config import Config, keys, load, parse_setting
from heroes.errors import ConfigError, HeroesError, did_you_mean
from heroes.messages import RoundRecord
from heroes.recipes import TASKS, recipe
from heroes.report import Summary, read_config, read_records
from heroes.report.summary import MEGABYTE, percent

INTERRUPTED = 130
app = typer.Typer(
    name="heroes",
    help="Federated learning on heterogeneous edge devices.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out_console = Console(highlight=False)
err_console = Console(stderr=True, highlight=False)


def main() -> None:
    """Run the command line and turn errors into one sentence and an exit code."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except click.exceptions.Abort:
        _interrupted()
    except KeyboardInterrupt:
        _interrupted()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except HeroesError as error:
        err_console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)


def _interrupted() -> None:
    err_console.print("interrupted; the rounds that were done are kept")
    sys.exit(INTERRUPTED)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"heroes {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    task: Annotated[str, typer.Argument(help="A task (see `heroes list`) or the path of a TOML file.")],
    strategy: Annotated[str | None, typer.Option(help="The scheme.")] = None,
    engine: Annotated[str | None, typer.Option(help="How tasks reach clients.")] = None,
    seed: Annotated[int | None, typer.Option(help="All randomness comes from it.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Stop after this many rounds.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; by default a new one under runs/.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change any key; may be repeated.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a run that the folder already holds.")] = False,
    quiet: Annotated[bool, typer.Option(help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")] = False,
) -> None:
    """Train a federation and write a run folder."""
    named = {"strategy.name": strategy, "engine.name": engine, "seed": seed, "federation.rounds": rounds}
    given = dict(parse_setting(text) for text in settings or [])
    config = configuration(task).changed(given | {key: value for key, value in named.items() if value is not None})
    folder = out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{config.task}-{config.strategy.name}-{config.seed}"
    with _status("setting up", quiet):
        from heroes.running import run  # torch is loaded here, where it is needed
    with _progress(config, quiet) as on_round:
        finished = run(config, out=folder, overwrite=overwrite, on_round=on_round)
    _print_summary(finished.summary(), folder, as_json)


@app.command("list")
def list_command(
    kind: Annotated[
        str | None, typer.Argument(help="Only this: tasks, strategies, models, data, partitions, fleets, engines, config.")
    ] = None,
) -> None:
    """Show what there is: tasks, strategies, models, data sets, partitions, fleets, engines, configuration keys."""
    kinds = _choices()
    if kind is not None and kind not in kinds:
        raise ConfigError(f"there is no list {kind!r}: {did_you_mean(kind, kinds)}")
    for title in [kind] if kind else [name for name in kinds if name != "config"]:
        table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2))
        for name, text in kinds[title]:
            table.add_row(name, text)
        out_console.print(table)
        out_console.print()
    if kind is None:
        out_console.print("Every configuration key: heroes list config")


@app.command("show")
def show_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Sum up a run from its folder, finished or not."""
    read_config(folder)
    records = read_records(folder)
    if records.torn:
        err_console.print("note: the last line of records.jsonl was cut off and is left out", style="yellow")
    _print_summary(Summary.of(records.rows), folder, as_json)


def configuration(task: str) -> Config:
    """The configuration a user means by a task's name or a file's path."""
    path = Path(task)
    if path.suffix == ".toml" or path.is_file():
        return load(path, {name: make() for name, make in TASKS.items()})
    return recipe(task)


def _choices() -> dict[str, list[tuple[str, str]]]:
    from heroes.data import DATASETS, PARTITIONS
    from heroes.fleet import FLEETS
    from heroes.models import MODELS

    def first_lines(functions: Any) -> list[tuple[str, str]]:
        return [(name, (function.__doc__ or "").strip().splitlines()[0]) for name, function in functions.items()]

    schemes = [
        ("heroes", "neural composition with the least trained blocks first, and local steps that let everyone finish together")
    ]
    return {
        "tasks": first_lines(TASKS),
        "strategies": schemes,
        "models": first_lines(MODELS),
        "data": first_lines(DATASETS),
        "partitions": first_lines(PARTITIONS),
        "fleets": [(name, kind.summary) for name, kind in FLEETS.items()],
        "engines": [("in_process", "clients one after the other in this process; the reference")],
        "config": [(key, f"{text} (default: {'none' if default is None else default})") for key, default, text in keys()],
    }


@contextmanager
def _status(text: str, quiet: bool) -> Iterator[None]:
    if quiet or not err_console.is_terminal:
        yield
    else:
        with err_console.status(text):
            yield


@contextmanager
def _progress(config: Config, quiet: bool) -> Iterator[Any]:
    """A function to call with each round's record: a live display on a terminal, plain lines elsewhere."""
    if quiet:
        yield None
    elif err_console.is_terminal:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[line]}"), console=err_console) as bar:
            job = bar.add_task(f"{config.task}/{config.strategy.name}", total=config.federation.rounds, line="setting up")
            told = _Notices(bar.console)

            def show(record: RoundRecord) -> None:
                told.look_at(record)
                bar.update(job, completed=record.round, line=_line(record))

            yield show
    else:
        told = _Notices(err_console)

        def say(record: RoundRecord) -> None:
            if record.round == 1:
                err_console.print(f"{config.task}/{config.strategy.name}, seed {config.seed}")
            told.look_at(record)
            err_console.print(f"round {record.round}/{config.federation.rounds}  {_line(record)}", soft_wrap=True)

        yield say


def _line(record: RoundRecord) -> str:
    accuracy = "" if record.accuracy is None else f"accuracy {percent(record.accuracy)}  "
    return f"{accuracy}time {record.seconds:,.1f} s  waiting {record.waiting:.2f} s  traffic {record.traffic / MEGABYTE:,.1f} MB"


class _Notices:
    """What a user should know, said once, or as it happens."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.said: set[str] = set()

    def look_at(self, record: RoundRecord) -> None:
        if record.threshold_unreachable:
            self._once(
                "strategy.threshold cannot be reached with the current estimates; the time budget or the rounds left decide"
            )
        for lost in record.missing:
            self.console.print(
                f"round {record.round}: client {lost.client}'s update is left out: {lost.reason}", style="yellow", markup=False
            )
        if len(record.missing) >= len(record.clients):
            self._once("a round had no usable update at all; a smaller training.learning_rate or a training.clip may help")

    def _once(self, text: str) -> None:
        if text not in self.said:
            self.said.add(text)
            self.console.print(f"note: {text}", style="yellow")


def _print_summary(summary: Summary, folder: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"folder": str(folder), **summary.as_json()}))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in summary.lines():
        table.add_row(name, text)
    table.add_row("run folder", str(folder))
    out_console.print(table)


if __name__ == "__main__":
    main()
