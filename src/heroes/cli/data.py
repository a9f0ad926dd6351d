"""`heroes data get | list | verify | plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.console import out_console, print_table, status, work_in_progress
from heroes.cli.helping import PlainGroup
from heroes.errors import DataError
from heroes.report import Table, save_figure
from heroes.report.summary import MEGABYTE

data_app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Get, list, check and look at data sets.")
app.add_typer(data_app, name="data")
Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Where data sets lie; by default $HEROES_DATA, else the user's data folder."),
]
MOST_DRAWN = 1000  # clients in a picture; more would be narrower than its pixels
Name = Annotated[str, typer.Argument(help="The data set (see `heroes data list`).")]


@data_app.command("get")
def get_command(
    name: Name,
    source: Annotated[
        str | None, typer.Option("--from", help="An archive, a folder or an address to take it from.")
    ] = None,
    directory: Directory = None,
    quiet: options.Quiet = False,
) -> None:
    """Download a data set, or take it from a file or folder of yours."""
    from heroes.data import get, verify

    with work_in_progress(quiet) as progress:
        folder = get(name, directory, source, progress)
        verdict = verify(name, directory, progress=progress) if source is None else None
    if verdict is not None and verdict.state != "ok":
        raise DataError(f"{name} was downloaded but is not what it should be: {verdict.detail}")
    out_console.print(str(folder), markup=False, soft_wrap=True)


@data_app.command("list")
def list_data_command(directory: Directory = None) -> None:
    """Show the data sets there are, and which are on this machine."""
    from heroes.data import data_directory, listed

    rows = [
        (
            entry.name,
            f"{entry.size / MEGABYTE:,.0f} MB" if entry.present else "not here",
            entry.title,
            entry.how,
        )
        for entry in listed(directory)
    ]
    rows.insert(0, ("digits", "bundled", "8x8 handwritten digits", "nothing to do"))
    print_table(
        Table(
            f"data sets in {data_directory(directory)}",
            ("name", "here", "what", "how to get it"),
            tuple(rows),
        )
    )


@data_app.command("verify")
def verify_command(
    name: Annotated[str | None, typer.Argument(help="The data set; by default all that are here.")] = None,
    directory: Directory = None,
    quiet: options.Quiet = False,
) -> None:
    """Read a data set from end to end and check its content against the official one."""
    from heroes.data import listed, verify

    names = [name] if name else [entry.name for entry in listed(directory) if entry.present]
    if not names:
        raise DataError("there is no data set to verify; `heroes data list` shows where they are looked for")
    with work_in_progress(quiet) as progress:
        verdicts = [verify(one, directory, progress=progress) for one in names]
    for verdict in verdicts:
        out_console.print(f"{verdict.name}: {verdict.state}; {verdict.detail}", markup=False, soft_wrap=True)
    bad = [verdict for verdict in verdicts if verdict.state in ("missing", "broken")]
    if bad:
        raise DataError("; ".join(f"{verdict.name} is {verdict.state}: {verdict.detail}" for verdict in bad))


@data_app.command("plot")
def plot_command(
    experiment: options.Experiment,
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture, without its ending.")] = Path(
        "labels"
    ),
    settings: options.Settings = None,
    quiet: options.Quiet = False,
) -> None:
    """Draw which classes the clients of an experiment hold."""
    from heroes.assemble.world import dataset, federated
    from heroes.report.shares_plot import label_distribution

    config = options.configuration(experiment, None, settings, {})
    with work_in_progress(quiet) as progress:
        shared = federated(config, dataset(config, progress, config.seed), config.seed, progress)
    if not shared.train.are_classes:
        raise DataError(f"{config.data.name} has targets that are no classes: there is nothing to draw")
    with status("drawing", quiet):
        labels = shared.train.targets.numpy()
        classes = int(labels.max()) + 1
        clients, shown = len(shared.shares), min(len(shared.shares), MOST_DRAWN)
        counts = np.stack([np.bincount(labels[shared.shares[n]], minlength=classes) for n in range(shown)])
        title = f"{config.experiment}, partition {config.data.partition}" + (
            f" ({clients:,} clients)" if shown < clients else ""
        )
        paths = save_figure(label_distribution(counts, title), output)
    for path in paths:
        out_console.print(str(path), markup=False, soft_wrap=True)
