"""`heroes tune`."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from heroes.cli import launch, options
from heroes.cli.app import app
from heroes.cli.console import err_console, note, print_table
from heroes.errors import ConfigError, HeroesError, printable
from heroes.report import Metric, read_records, write_whole
from heroes.runs.planned import Planned
from heroes.settings.config import Config
from heroes.strategies import registry
from heroes.tuning.grids import label, parse_grid, parts
from heroes.tuning.outcome import best_of, markdown, settings_file, tables
from heroes.tuning.results import Book, Result, Trial, result_of
from heroes.tuning.search import SEEDS, Search
from heroes.tuning.workers import Ended, Workers, workers

BUDGET = 100.0  # virtual seconds, where neither the command nor the experiment says how many
_TRIALS = (
    "data.validation=0.1",
    "federation.rounds=1000000",  # the budget is what ends a trial
    "evaluation.every_width=false",
    "engine.name=in_process",
)
_HOW_LONG = "Virtual seconds of a trial; by default the experiment's, or 100."
Budget = Annotated[float | None, typer.Option(metavar="SECONDS", help=_HOW_LONG)]
Out = Annotated[Path | None, typer.Option(help="Where results go; by default runs/tune-EXPERIMENT.")]
Runs = Annotated[Path | None, typer.Option(help="Where run folders go; by default trials/ in there.")]
Seeds = Annotated[str, typer.Option(help="The seeds of each trial; do not report runs with them.")]
Jobs = Annotated[int, typer.Option(min=1, help="Trials at the same time, each in one thread.")]


@app.command("tune")
def tune_command(
    experiment: options.Experiment,
    strategies: options.Strategies = ",".join(registry.PAPER),
    grid: options.Grid = None,
    budget: Budget = None,
    seeds: Seeds = ",".join(map(str, SEEDS)),
    settings: options.Settings = None,
    own: options.Own = None,
    out: Out = None,
    runs: Runs = None,
    jobs: Jobs = 2,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Find settings that suit each strategy, on held-out examples; say the same again to go on."""
    bases = _bases(experiment, strategies, settings, budget, own)
    first = next(iter(bases.values()))
    options.say_idle(settings, first)
    experiment = options.folder_name(first.experiment)
    out = out or Path("runs") / options.folder_name("tune", experiment)
    search = Search(
        bases, parse_grid(grid or []), Book(out / f"{experiment}.jsonl"), options.seeds(seeds) or SEEDS
    )
    if search.book.torn:
        note(f"the last line of {search.book.path} was cut off; its trial is made again")
    search.check()
    out.mkdir(parents=True, exist_ok=True)  # before anything that takes long
    command = shlex.join(["heroes", *sys.argv[1:]])
    making = _Making(search, runs or out / "trials", jobs, quiet)
    with _going_on(command, search.book), making.shown():
        search.run(making.make_all)
    _tell(search, out / experiment, command, as_json)


def _bases(
    experiment: str, strategies: str, settings: list[str] | None, budget: float | None, own: Path | None
) -> dict[str, Config]:
    """The configuration that the trials of each strategy start from."""
    bases: dict[str, Config] = {}
    for name in options.strategy_names(strategies, own):
        config = options.configuration(
            experiment, name, [*_TRIALS, *(settings or [])], {"federation.time_budget": budget}, own=own
        )
        if config.federation.time_budget is None:
            config = config.changed({"federation.time_budget": BUDGET})
        bases[name] = config
    first = next(iter(bases.values()))
    if not first.data.validation:
        raise ConfigError("data.validation is 0: trials would be scored on the test set; use 0.1, say")
    if launch.size() > 1 or first.engine.name in ("mpi", "flower"):
        raise ConfigError("heroes tune does not run under MPI or Flower; --jobs says how many run at once")
    return bases


@contextmanager
def _going_on(command: str, book: Book) -> Iterator[None]:
    """When interrupted, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        said = f"interrupted, {len(book.results)} trials are on record; to go on: {command}"
        raise click.exceptions.Abort(said) from None


@contextmanager
def _patience(quiet: bool) -> Iterator[None]:
    """When interrupted, say what is being waited for: the workers end with a whole round."""
    try:
        yield
    except KeyboardInterrupt:
        if not quiet:
            err_console.print("finishing the rounds that are under way; Ctrl-C again leaves at once")
        raise


@dataclass
class _Making:
    """Makes the trials of a search in processes, and shows how far it is."""

    search: Search
    folder: Path
    jobs: int
    quiet: bool
    done: int = 0
    made: int = 0
    began: float = field(default_factory=time.monotonic)
    bar: Progress | None = None
    task: TaskID | None = None
    crew: Workers | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Inside there are workers, and on a terminal a line that says how far it is."""
        with workers(self.jobs) as self.crew, _patience(self.quiet):
            if self.quiet or not err_console.is_terminal:
                yield
                return
            columns = (BarColumn(bar_width=12), MofNCompleteColumn(), TextColumn("{task.fields[line]}"))
            with Progress(*columns, console=err_console, transient=True) as self.bar:
                self.task = self.bar.add_task("", total=None, line="the first trials are under way")
                yield

    def make_all(self, trials: Sequence[Trial], known: int, later: int) -> None:
        """Make a stage's trials; those whose folder has a finished run are only read."""
        assert self.crew is not None
        self.done += known
        todo = [(self._planned(trial), trial) for trial in trials]
        total = self.done + len(todo) + later
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=self.done, total=total)
        finished = [(planned, trial) for planned, trial in todo if planned.done]
        for planned, trial in finished:
            self._keep(result_of(trial, read_records(planned.folder).rows, 0.0), total)
        for trial, ended in self.crew.run([each for each in todo if each not in finished]):
            self._keep(self._result(trial, ended), total)

    def _planned(self, trial: Trial) -> Planned:
        words = [word for part in parts(trial.settings) for word in part]
        name = options.folder_name(trial.strategy, *words, trial.seed)
        return Planned(trial.config, self.folder / name, label(trial.settings))

    def _result(self, trial: Trial, ended: Ended) -> Result:
        """What a trial came to. One that cannot be trained counts as the worst; a mistake ends it all."""
        if ended.failed is not None and ended.exit_code != 1:
            raise HeroesError(f"{trial.strategy} with {label(trial.settings)}: {ended.failed}")
        records = self._planned(trial).folder
        rows = read_records(records).rows if (records / "records.jsonl").exists() else ()
        return result_of(trial, rows, ended.wall_seconds, ended.failed)

    def _keep(self, result: Result, total: int) -> None:
        self.search.book.add(result)
        self.done += 1
        self.made += 1
        if self.quiet:
            return
        left = (total - self.done) * (time.monotonic() - self.began) / self.made
        metric = Metric(result.metric, result.lower_is_better)
        came = "failed" if result.failed else "no test" if result.score is None else metric.text(result.score)
        tried = f"{result.strategy} {label(result.settings)}, seed {result.seed}: {came}"
        line = f"about {_minutes(left)} left{self._best(result.strategy)}"
        if self.bar is not None and self.task is not None:
            self.bar.console.print(printable(tried), markup=False, soft_wrap=True)
            self.bar.update(self.task, completed=self.done, total=total, line=line)
        else:
            err_console.print(f"{self.done} of {total}, {line}; {tried}", markup=False, soft_wrap=True)

    def _best(self, strategy: str) -> str:
        best = self.search.candidates(strategy)[:1]
        if not best or best[0].score is None:
            return ""
        return f", best {strategy} {best[0].metric.text(best[0].score)}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _tell(search: Search, path: Path, command: str, as_json: bool) -> None:
    """Write the table and the file of settings, and print the best."""
    best, shown = best_of(search), tables(search)
    write_whole(path.with_name(f"{path.name}.md"), markdown(shown, command))
    file = write_whole(path.with_name(f"{path.name}.toml"), settings_file(search, command))
    if as_json:
        found = {name: {"settings": dict(each.settings), "score": each.score} for name, each in best.items()}
        print(json.dumps(found))
    else:
        print_table(shown[0])
    for name in search.bases:
        if name not in best:
            note(f"no trial of {name} had a test within the budget, or all failed; try a larger --budget")
    err_console.print(f"settings: {file}", markup=False, soft_wrap=True)
