"""`heroes study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.console import err_console, out_console, print_table
from heroes.cli.together import Together, runs_in_progress
from heroes.runs.planned import Planned
from heroes.studies import plans
from heroes.studies.kept import Store
from heroes.studies.making import kept_runs, make, outcomes, planned, refuse_without_data, title, to_make
from heroes.studies.tables import table

_WHAT = "Studies that come with heroes (see --list), or TOML files."
Names = Annotated[list[str] | None, typer.Argument(metavar="STUDY …", help=_WHAT)]
Results = Annotated[Path, typer.Option(help="Where small results are kept, and looked for.")]
Runs = Annotated[Path, typer.Option(help="Where run folders are while they are needed.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time, each in one thread.")]
Listed = Annotated[
    bool, typer.Option("--list", help="Say which studies there are, and what is kept of them.")
]
Only = Annotated[bool, typer.Option("--tables", help="Run nothing: tables of what is kept.")]


@app.command("study")
def study_command(
    names: Names = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs/studies"),
    jobs: Jobs = 2,
    listed: Listed = False,
    only_tables: Only = False,
    quiet: options.Quiet = False,
) -> None:
    """Make the runs of a study that are missing, keep them as small files, and show what they came to."""
    store = Store(results)
    if listed or not names or names == ["list"]:
        _list(store)
        return
    for plan in [plans.read(name) for name in names]:
        todo = [] if only_tables else to_make(plan, store)
        refuse_without_data([config for _, config in todo])
        if todo:
            make_shown(plan, planned(todo, store, runs), store, jobs, quiet)
        for variant in plan.variants:
            print_table(table(plan, list(outcomes(list(plans.rows(plan, variant)), store)), variant))


def _list(store: Store) -> None:
    for name in plans.names():
        plan = plans.read(name)
        out_console.print(f"{name:14} {kept(plan, store)}. {plan.about}", markup=False)


def kept(plan: plans.Plan, store: Store) -> str:
    """How many of the runs of a study are there."""
    there, wanted = kept_runs(plan, store)
    return f"{there} of {wanted} runs kept"


def make_shown(plan: plans.Plan, todo: list[Planned], store: Store, jobs: int, quiet: bool) -> None:
    """Make these runs of a study; say how far it is, and a line for every run that ends."""
    begun = {run.folder for run in todo if run.begun}
    together = Together({title(run): run for run in todo}, begun, head=f"{plan.name} ")

    def heard(run: Planned, came: str) -> None:
        together.over.add(run.folder)
        if not quiet:
            done, left = len(together.over), together.left()
            rest = f", about {max(1, round(left / 60))} min left" if left else ""
            line = f"{plan.name} {done} of {len(todo)}{rest}; {title(run)}: {came}"
            err_console.print(line, markup=False, soft_wrap=True)

    with runs_in_progress(together, quiet):
        make(todo, store, jobs, heard)
