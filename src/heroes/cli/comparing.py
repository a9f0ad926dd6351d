"""`heroes compare` and `heroes report`."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from click.core import ParameterSource

from heroes.cli import launch, options
from heroes.cli.app import app
from heroes.cli.console import err_console, note, out_console, print_table, status
from heroes.cli.progress import rounds_in_progress
from heroes.cli.together import Together, runs_in_progress
from heroes.errors import ConfigError, HeroesError, RunFolderError, TrainingError
from heroes.report import (
    Comparison,
    Metric,
    compare,
    comparison_pictures,
    load_runs,
    reference_among,
    refuse_targets,
    save_figure,
    write_page,
    write_whole,
)
from heroes.runs.planned import Planned
from heroes.settings.toml_files import text as whole_file
from heroes.settings.tuned_files import Settings
from heroes.strategies import registry
from heroes.studies.making import refuse_without_data
from heroes.tuning.grids import combinations, label, parse_grid, parts, varied

_WHAT = "An experiment or a TOML file to run, or run folders."
Things = Annotated[list[str], typer.Argument(metavar="EXPERIMENT | RUN RUN …", help=_WHAT)]
Seeds = Annotated[str, typer.Option(help="The seeds, with commas between.")]
_UNTIL = "Stop each run when the mean of its last three test accuracies reaches this (0 to 1)."
UntilAccuracy = Annotated[float | None, typer.Option(help=_UNTIL)]
UntilTime = Annotated[float | None, typer.Option(help="Stop each run after so many seconds of its clock.")]
UntilTraffic = Annotated[float | None, typer.Option(help="Stop each run after these megabytes.")]
Tuned = Annotated[
    Path | None, typer.Option("--settings", help="A file of tuned settings, as heroes tune writes it.")
]
Out = Annotated[Path | None, typer.Option(help="The comparison folder; by default runs/compare-EXPERIMENT.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time, each in a process of its own.")]
Targets = Annotated[str | None, typer.Option(help="Scores to reach (accuracy: 0 to 1), with commas between.")]
_WHOSE = "The strategy that the others are compared with: heroes, else the first."
Latex = Annotated[bool, typer.Option(help="Print the tables as LaTeX (booktabs) on standard output.")]
Reference = Annotated[str | None, typer.Option(metavar="NAME", help=_WHOSE)]
# options that mean something for runs that exist
_FOR_RUNS = ("targets", "reference", "out", "as_json", "latex", "quiet")


@app.command("compare")
def compare_command(
    context: typer.Context,
    things: Things,
    strategies: options.Strategies = ",".join(registry.PAPER),
    seeds: Seeds = "0",
    until_accuracy: UntilAccuracy = None,
    until_time: UntilTime = None,
    until_traffic: UntilTraffic = None,
    engine: options.Engine = None,
    rounds: options.Rounds = None,
    settings: options.Settings = None,
    own: options.Own = None,
    grid: options.Grid = None,
    tuned: Tuned = None,
    out: Out = None,
    jobs: Jobs = 1,
    targets: Targets = None,
    reference: Reference = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
    latex: Latex = False,
) -> None:
    """Run strategies side by side and compare them, or compare existing runs; nothing is run twice."""
    if as_json and latex:
        raise ConfigError("--json and --latex both want standard output; say one of them")
    marks = None if targets is None else [options.number(text, "--targets") for text in targets.split(",")]
    folders = [Path(thing) for thing in things]
    if all((folder / "records.jsonl").exists() for folder in folders):
        _refuse_idle(context)
    else:
        _refuse_missing(folders)
        named = {
            "engine.name": engine,
            "federation.rounds": rounds,
            "federation.target_accuracy": until_accuracy,
            "federation.time_budget": until_time,
            "federation.traffic_budget": until_traffic,
        }
        asked = _Asked(things[0], settings, named, tuned, own, out)
        planned = list(asked.runs(strategies, seeds, combinations(parse_grid(grid or []))))
        options.say_idle(settings, planned[0].config)
        _refuse_early(planned, marks, reference)
        _run_all(planned, jobs, overwrite, quiet)
        folders = [job.folder for job in planned]
        out = planned[0].folder.parent
    found = compare(load_runs(folders), targets=marks, reference=reference)
    if out is not None:
        write_comparison(found, out, quiet)
    print(found.latex(), end="") if latex else _tell(found, as_json)


def _refuse_idle(context: typer.Context) -> None:
    """Raise an error if an option says how to run, where runs that exist are compared."""
    given = (
        each
        for each in context.command.params
        if each.name != "things"
        and context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
    )
    if idle := next((each.opts[0] for each in given if each.name not in _FOR_RUNS), None):
        raise ConfigError(
            f"{idle} says how to run, but these are runs that exist: leave it out, or give an experiment or "
            "a TOML file instead of run folders"
        )


def _refuse_missing(folders: list[Path]) -> None:
    """Raise an error if one of several things to compare is not a run folder."""
    if len(folders) > 1:
        missing = next(str(folder) for folder in folders if not (folder / "records.jsonl").exists())
        raise RunFolderError(f"{missing!r} is not a run folder: it has no records.jsonl")


@dataclass(frozen=True)
class _Asked:
    """What all runs of a comparison are made from, and where they go."""

    experiment: str
    settings: list[str] | None
    named: Mapping[str, object]
    tuned: Path | None
    own: Path | None
    out: Path | None

    def runs(self, strategies: str, seeds: str, variants: Sequence[Settings]) -> Iterator[Planned]:
        """Every strategy with every variant and every seed."""
        names = options.strategy_names(strategies, self.own)
        for seed in options.seeds(seeds) or ():
            chosen = {**self.named, "seed": seed}
            for name in names:
                for variant in variants:
                    yield self._run(name, variant, chosen)

    def _run(self, strategy: str, variant: Settings, named: Mapping[str, object]) -> Planned:
        config = options.configuration(self.experiment, strategy, self.settings, named, self.tuned, self.own)
        config = varied(config, variant)
        words = [word for part in parts(variant) for word in part]
        folder = self.out or Path("runs") / options.folder_name("compare", config.experiment)
        return Planned(config, folder / options.folder_name(strategy, *words, config.seed), label(variant))


def _refuse_early(planned: list[Planned], targets: list[float] | None, reference: str | None) -> None:
    """Raise an error now for what would be one after all the runs."""
    refuse_targets(targets or (), Metric(planned[0].config.objective.measured[0]))
    reference_among((job.config.strategy.name for job in planned), reference)
    if launch.size() > 1 or any(job.config.engine.name == "mpi" for job in planned):
        raise ConfigError(
            "heroes compare does not run under MPI: run each strategy by mpiexec -n 5 heroes run EXPERIMENT "
            "--strategy NAME --engine mpi --out FOLDER, then heroes compare FOLDER FOLDER"
        )


def _run_all(planned: list[Planned], jobs: int, overwrite: bool, quiet: bool) -> None:
    todo = [job for job in planned if overwrite or not job.done]
    refuse_without_data([job.config for job in todo])
    if len(todo) < len(planned) and not quiet:
        err_console.print(f"{len(planned) - len(todo)} of {len(planned)} runs are already done")
    if jobs > 1 and len(todo) > 1:
        _run_in_processes(todo, jobs, quiet)
        return
    with status("setting up", quiet):
        from heroes.runs.running import run
    for job in todo:
        if job.variant and not quiet:
            err_console.print(job.name, markup=False, soft_wrap=True)
        with rounds_in_progress(job.config, quiet) as watching:
            run(job.config, out=job.folder, overwrite=True, **watching._asdict())


def _run_in_processes(todo: list[Planned], jobs: int, quiet: bool) -> None:
    """Each run as `heroes run` in a process of its own; an interrupt reaches them all."""
    from heroes.transport.workers.pool import cores

    together = Together({job.name: job for job in todo})

    def work(job: Planned) -> tuple[int, str] | None:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "planned.toml").write_text(whole_file(job.config), encoding="utf-8")
        command = [sys.executable, "-m", "heroes.cli", "run", str(job.folder / "planned.toml")]
        command += ["--out", str(job.folder), "--overwrite", "--quiet", "--json"]
        command += [] if job.config.engine.workers else ["--set", f"engine.workers={max(1, cores() // jobs)}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (job.folder / "planned.toml").unlink(missing_ok=True)
        together.over.add(job.folder)
        if done.returncode != 0:
            last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            return done.returncode, last.removeprefix("error: ")
        if not quiet:
            came = json.loads(done.stdout)
            score = Metric(came["metric"]).text(came["score"])
            err_console.print(f"{job.name}: done, {came['metric']} {score}", markup=False)
        return None

    if not quiet:
        where = shlex.quote(str(todo[0].folder.parent))
        err_console.print(
            f"{len(todo)} runs, {jobs} at a time; heroes watch {where} shows them",
            markup=False,
            soft_wrap=True,
        )
    with runs_in_progress(together, quiet), ThreadPoolExecutor(jobs) as pool:
        failed = [answer for answer in pool.map(work, todo) if answer is not None]
    if failed:
        mistake = all(code == ConfigError.exit_code for code, _ in failed)
        raise (ConfigError if mistake else TrainingError)(
            "; ".join(dict.fromkeys(text for _, text in failed))
        )


def _tell(found: Comparison, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.as_json()))
        return
    for table in found.tables():
        print_table(table)
        out_console.print()
    for text in found.notes:
        note(text)


def write_comparison(found: Comparison, out: Path, quiet: bool) -> None:
    """The comparison folder: tables as JSON, CSV and LaTeX, pictures, the page."""
    write_whole(out / "comparison.json", json.dumps(found.as_json(), indent=2) + "\n")
    write_whole(out / "comparison.csv", found.as_csv())
    write_whole(out / "comparison.tex", found.latex())
    try:
        with status("drawing", quiet):
            for picture in comparison_pictures(found):
                save_figure(picture.figure, out / picture.name)
            runs = [run for group in found.groups for run in group.runs]
            page = write_page(runs, out / "report.html", found)
    except HeroesError as error:
        note(f"no pictures: {error}")
        return
    err_console.print(f"report: {page}", markup=False, soft_wrap=True)


@app.command("report")
def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained page about runs: tables, pictures, configuration, provenance."""
    runs = load_runs(folders)
    with status("writing the report"):
        path = write_page(runs, output)
    out_console.print(str(path), markup=False, soft_wrap=True)
