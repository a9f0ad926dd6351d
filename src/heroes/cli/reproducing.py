"""`heroes reproduce`: the evaluation, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.comparing import write_comparison
from heroes.cli.console import err_console, note, out_console, print_table, status
from heroes.cli.studying import Jobs, Progress, kept
from heroes.errors import ConfigError, did_you_mean
from heroes.report import Comparison, compare, write_whole
from heroes.report.page import book
from heroes.studies import plans
from heroes.studies.kept import Store
from heroes.studies.making import make, missing, outcomes

FIGURES = {
    "accuracy": "accuracy",
    "waiting": "accuracy",
    "resources": "accuracy",
    "noniid": "noniid",
    "text": "text",
    "images": "images",
    "ablation": "ablation",
    "worlds": "worlds",
}
"""which plan has the runs of a figure"""
_WHAT = f"list, all, or figures: {', '.join(FIGURES)}."
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
    """Repeat the evaluation: run what is missing, then write tables, pictures and one page per figure."""
    store = Store(results or (out / "results" if scale == "smoke" else Path("results")))
    if figures == ["list"]:
        for name, plan_name in FIGURES.items():
            plan = _plan(plan_name, scale, seeds)
            out_console.print(f"{name:10} {kept(plan, store)}. {plan.about}", markup=False)
        return
    for name in dict.fromkeys(_wanted(figures)):
        plan = _plan(name, scale, seeds)
        todo = missing((list(plans.rows(plan, variant)) for variant in plan.variants), store)
        if todo and not only_tables:
            make(todo, store, out / "runs", jobs, Progress(name, len(todo), quiet).heard)
        _tell(plan, store, out / name, quiet)


def _wanted(figures: list[str]) -> Iterator[str]:
    """The plans of these figures."""
    for figure in FIGURES if figures == ["all"] else figures:
        if figure not in FIGURES:
            known = did_you_mean(figure, [*FIGURES, "list", "all"])
            raise ConfigError(f"there is no figure {figure!r}: {known}")
        yield FIGURES[figure]


def _plan(name: str, scale: str, seeds: str | None) -> plans.Plan:
    plan = plans.read_file(plans.FIGURES / f"{name}.toml").at(scale)
    if seeds is None:
        return plan
    chosen = tuple(int(options.number(part, "--seeds", whole=True)) for part in seeds.split(","))
    return plan.model_copy(update={"seeds": chosen})


def _tell(plan: plans.Plan, store: Store, out: Path, quiet: bool) -> None:
    """Print the leading tables of every variant, and write everything."""
    chapters = dict(_chapters(plan, store))
    if not chapters:
        raise ConfigError(f"no run of {plan.name} is kept in {str(store.folder)!r}; leave out --tables")
    for name, found in chapters.items():
        for shown in found.leading():
            print_table(replace(shown, title=f"{name}: {shown.title}" if name else shown.title))
        write_comparison(found, out / options.folder_name(name or plan.name), quiet=True)
        for text in found.notes:
            note(text)
    with status("drawing", quiet):
        page = write_whole(out / "page.html", book(f"heroes: {plan.name}", plan.about, chapters))
    err_console.print(f"page: {page}", markup=False, soft_wrap=True)


def _chapters(plan: plans.Plan, store: Store) -> Iterator[tuple[str, Comparison]]:
    for variant in plan.variants:
        found = list(outcomes(list(plans.rows(plan, variant)), store))
        runs = [replace(run, row=outcome.label) for outcome in found for run in outcome.runs]
        if runs:
            absent = [f"{o.label}: {len(o.runs)} of {o.wanted} runs" for o in found if len(o.runs) < o.wanted]
            whole = compare(runs, targets=plan.targets or None)
            yield variant, replace(whole, notes=(*whole.notes, *absent))
