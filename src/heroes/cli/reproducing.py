"""`heroes reproduce`: the evaluation, figure by figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.comparing import write_comparison
from heroes.cli.console import err_console, note, out_console, print_table, status
from heroes.cli.studying import Jobs, kept, make_shown
from heroes.errors import ConfigError
from heroes.report import save_figure, write_whole
from heroes.report.page import Picture, book, contents
from heroes.studies import plans
from heroes.studies.figures import FIGURES, chapters, plan_of, wanted
from heroes.studies.kept import Store
from heroes.studies.making import kept_runs, planned, refuse_without_data, to_make
from heroes.studies.telling.pictures import together
from heroes.studies.telling.writing import write_pages

_PAGE = "page.html"
_WHAT = f"list, page, all, or figures: {', '.join(FIGURES)}."
Figures = Annotated[list[str], typer.Argument(metavar="FIGURE …", help=_WHAT)]
Scale = Annotated[str, typer.Option(help="smoke: minutes; small: a night; full: the paper's size.")]
Seeds = Annotated[str | None, typer.Option(help="The seeds, instead of the plan's, with commas between.")]
Results = Annotated[
    Path | None, typer.Option(help="Where small results are kept; by default results/, for smoke in --out.")
]
Out = Annotated[Path, typer.Option(help="Where tables, pictures and pages go.")]


@app.command("reproduce")
def reproduce_command(
    figures: Figures,
    scale: Scale = "small",
    seeds: Seeds = None,
    jobs: Jobs = 2,
    results: Results = None,
    out: Out = Path("runs/reproduce"),
    only_tables: Annotated[bool, typer.Option("--tables", help="Run nothing: tell what is kept.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Repeat the evaluation: run what is missing, then write tables, pictures and one page per figure.

    `page` runs nothing: it writes the pages about all that is kept, docs/results.md and others, to --out.
    """
    store = Store(results or (out / "results" if scale == "smoke" else Path("results")))
    if figures == ["list"]:
        _list(store, scale, seeds)
        return
    if figures == ["page"]:
        _page(store, out, scale, quiet)
        return
    chosen = [plan_of(name, scale, options.seeds(seeds)) for name in wanted(figures)]
    todo = {plan.name: [] if only_tables else to_make(plan, store) for plan in chosen}
    refuse_without_data([config for each in todo.values() for _, config in each])
    _refuse_nothing(chosen, todo, store)
    told = []
    for plan in chosen:
        if todo[plan.name]:
            again = to_make(plan, store)  # figures share runs
            make_shown(plan, planned(again, store, out / "runs"), store, jobs, quiet)
        if _tell(plan, store, out / plan.name, quiet):
            told.append(plan)
    if len(told) > 1:
        listed = {f"{plan.name}/{_PAGE}": (plan.name, plan.about) for plan in told}
        page = write_whole(out / "index.html", contents("heroes: the evaluation", f"Scale {scale}.", listed))
        err_console.print(f"all pages: {page}", markup=False, soft_wrap=True)


def _list(store: Store, scale: str, seeds: str | None) -> None:
    for name, plan_name in FIGURES.items():
        plan = plan_of(plan_name, scale, options.seeds(seeds))
        out_console.print(f"{name:14} {kept(plan, store)}. {plan.about}", markup=False)


def _page(store: Store, out: Path, scale: str, quiet: bool) -> None:
    with status("writing pages and pictures", quiet):
        written = write_pages(store, out, scale)
    for path in written:
        err_console.print(f"written: {path}", markup=False, soft_wrap=True)


def _refuse_nothing(chosen: list[plans.Plan], todo: Mapping[str, object], store: Store) -> None:
    """Refuse to tell of figures without a single run, before anything is written."""
    empty = [plan.name for plan in chosen if not todo[plan.name] and kept_runs(plan, store)[0] == 0]
    if len(empty) == len(chosen):
        names, where = ", ".join(empty), str(store.folder)
        raise ConfigError(f"no run of {names} is kept in {where!r}; leave out --tables to make them")
    for name in empty:
        note(f"no run of {name} is kept in {str(store.folder)!r}")


def _tell(plan: plans.Plan, store: Store, out: Path, quiet: bool) -> bool:
    """Print the leading tables of every variant, and write everything; whether there was anything."""
    told = list(chapters(plan, store))
    shown = {
        each.variant: replace(each.found, notes=(*each.found.notes, *each.absent))
        for each in told
        if each.found is not None
    }
    for name, found in shown.items():
        for table in found.leading():
            print_table(replace(table, title=f"{name}: {table.title}" if name else table.title))
        write_comparison(found, out / options.folder_name(name or plan.name), quiet=True)
        for text in found.notes:
            note(text)
    if shown:
        with status("drawing", quiet):
            drawn = [(each, each.draw()) for each in together(plan.name, told)]
            pictures = [
                Picture(each.name, figure, each.caption) for each, figure in drawn if figure is not None
            ]
            for picture in pictures:
                save_figure(picture.figure, out / picture.name)
            page = write_whole(out / _PAGE, book(f"heroes: {plan.name}", plan.about, shown, pictures))
        err_console.print(f"page: {page}", markup=False, soft_wrap=True)
    return bool(shown)
