"""Where numbers come from: command, wall time, seeds, settings, machine, and how far seeds differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from heroes.report.measures import Spread
from heroes.report.runs import RunData
from heroes.report.summary import final_score
from heroes.settings import tuned_files
from heroes.studies.figures import Chapter
from heroes.studies.telling.evidence import Evidence
from heroes.studies.telling.markdown import grid, percent

_HEADER = (
    "figure",
    "runs",
    "seeds",
    "seeds differ by",
    "tested",
    "precision",
    "settings",
    "machine",
    "heroes",
)
_READ = """\
*Seeds differ by: the mean standard deviation of the accuracy in the end, and of the time to the hardest
target, over rows with two seeds or more. A difference between rows that is smaller says nothing; with one
seed no difference below that of other figures does. Tests that are further apart cost strategies with long
rounds more. Times are computed from a model of devices and links, not measured: they compare strategies, and
predict no wall time. What runs took is processor time; of those kept by earlier versions it is wall time, two
beside each other.*"""


def how(name: str, evidence: Evidence) -> str:
    """The command that makes the runs of a figure, and what it took."""
    plan = evidence.figures[name][0].plan
    there, of = evidence.count(name)
    known = [each for run in evidence.runs(name) if (each := _environment(run).get("core_seconds"))]
    took = f"; {len(known)} of them took {_long(sum(known))} in all, a core each" if known else ""
    return f"`heroes reproduce {name}`: {there} of {of} runs are there ({seeds_of(plan.seeds)}){took}."


def seeds_of(seeds: Sequence[int]) -> str:
    """Seeds in words."""
    return f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def lines(evidence: Evidence) -> list[str]:
    """The table of all figures."""
    rows = [_row(name, of_plan, evidence.runs(name)) for name, of_plan in evidence.figures.items()]
    return [*grid(_HEADER, [row for row in rows if row]), "", *_READ.splitlines(), "", *_settings(evidence)]


def _row(name: str, of_plan: Sequence[Chapter], runs: Sequence[RunData]) -> tuple[str, ...]:
    if not runs:
        return ()
    plan = of_plan[0].plan
    counts = sorted({len(each.runs) for chapter in of_plan for each in chapter.outcomes})
    seeds = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    sample = {_tests(run) for run in runs}
    versions = sorted({str(_environment(run).get("heroes")) for run in runs})
    machines = sorted({_machine(run) for run in runs})
    return (
        f"`{name}`",
        str(len(runs)),
        f"{seeds} a row",
        _differ(of_plan),
        "; ".join(sorted(sample)),
        _precisions(runs),
        f"{plan.experiment}'s",
        "; ".join(machines),
        ", ".join(versions),
    )


def _differ(of_plan: Sequence[Chapter]) -> str:
    """The mean deviation between seeds, of scores and of times."""
    scores, times = [], []
    for chapter in of_plan:
        for outcome in chapter.outcomes:
            deviation = Spread(tuple(final_score(run.rows) for run in outcome.runs)).std
            scores += [] if deviation is None else [deviation]
        found = chapter.found
        for group in found.groups if found else ():
            for target in reversed(found.targets if found else []):
                spread = found.find(group.label, f"seconds to {found.metric.name}", target) if found else None
                if spread is not None and spread.std is not None and spread.mean:
                    times.append(spread.std / spread.mean)
                    break
    if not scores:
        return "not known: one seed"
    return f"{100 * fmean(scores):.1f} points" + (f", {percent(fmean(times))} of the time" if times else "")


def _tests(run: RunData) -> str:
    every = run.settings["evaluation.every"]
    when = "every round" if every == 1 else f"every {every} rounds"
    on = f"{run.settings['evaluation.sample']:,} examples" if run.sampled else "the whole test set"
    return f"{when}, {on}"


def _precisions(runs: Sequence[RunData]) -> str:
    """In which precision clients trained, and in how many runs where that is not the same in all."""
    counts = Counter(str(run.settings["training.precision"]) for run in runs)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{word} in {count}" for word, count in counts.most_common())


def _environment(run: RunData) -> dict[str, Any]:
    return dict(run.environment or {})


def _machine(run: RunData) -> str:
    machine = _environment(run).get("machine")
    if not isinstance(machine, dict) or not machine.get("system"):
        return "not written down"
    return f"{machine['system']}, {machine.get('processors')} cores, torch {machine.get('torch')}"


def _settings(evidence: Evidence) -> Iterator[str]:
    """Where the settings of each experiment come from, as its file of tuned settings says."""
    yield "Where the settings of an experiment come from, as `src/heroes/settings/tuned` says:"
    yield ""
    for experiment in sorted({of_plan[0].plan.experiment for of_plan in evidence.figures.values()}):
        yield f"- {experiment}: {tuned_files.provenance(experiment)}"


def _long(seconds: float) -> str:
    """
    >>> _long(95), _long(700), _long(9000)
    ('95 s', '12 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
