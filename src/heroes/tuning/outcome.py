"""What a search came to: tables for people, and the file of settings that recipes and comparisons read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heroes.report.metrics import Metric
from heroes.report.tables import Table
from heroes.settings import tuned_files
from heroes.settings.config import flat
from heroes.settings.recipes import tuned
from heroes.tuning.grids import label
from heroes.tuning.search import Candidate, Search


def best_of(search: Search) -> dict[str, Candidate]:
    """The best settings of every strategy that has any with a score."""
    firsts = {name: search.candidates(name)[:1] for name in search.bases}
    return {name: first[0] for name, first in firsts.items() if first and first[0].score is not None}


def tables(search: Search) -> list[Table]:
    """The best of every strategy, then everything that was tried, the best first."""
    config = next(iter(search.bases.values()))
    budget = config.federation.time_budget
    every = [each for name in search.bases for each in search.candidates(name)]
    metric = every[0].metric if every else Metric()
    seeds = ", ".join(map(str, search.seeds))
    note = (
        f"Scores are {metric.name} on {config.data.validation:.0%} of the training examples, which were held "
        f"out: means over {budget:g} virtual seconds and over the seeds {seeds}."
    )
    best = list(best_of(search).values())
    return [
        Table(f"Settings for {config.experiment}", _header(metric), tuple(map(_row, best)), note),
        Table("All trials", _header(metric), tuple(map(_row, every))),
    ]


def _header(metric: Metric) -> tuple[str, ...]:
    return ("strategy", "settings", f"{metric.name}{metric.unit}", "after s", "rounds")


def _row(each: Candidate) -> tuple[str, ...]:
    failed = next((result.failed for result in each.results if result.failed), None)
    score = "failed" if failed else "no test" if each.score is None else each.metric.short(each.score)
    rounds = sum(result.rounds for result in each.results) / len(each.results)
    reached = "" if each.reached is None else f"{each.reached:.1f}"
    return each.strategy, label(each.settings), score, reached, f"{rounds:.0f}"


def markdown(shown: Sequence[Table], command: str) -> str:
    """The tables for a file, with the command that made them."""
    lines = [f"Made by `{command}`.", ""]
    for table in shown:
        rows = [table.header, ("---",) * len(table.header), *table.rows]
        cells = ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
        lines += [f"## {table.title}", "", *cells, "", *([table.note, ""] if table.note else [])]
    return "\n".join(lines[:-1]) + "\n"


def settings_file(search: Search, command: str) -> str:
    """The file of settings: what suited a strategy on this experiment before, as the trials had it, then what
    was found now.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, best in best_of(search).items():
        config = search.bases[name]
        had = dict(flat(config.model_dump()))
        found[name] = {
            **{key: had[key] for key in tuned(config.experiment, config.strategy)},
            **best.settings,
        }
    return tuned_files.text(found, f"Made by this command; the table beside it has the scores:\n{command}")
