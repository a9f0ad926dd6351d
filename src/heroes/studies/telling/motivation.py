"""How long the clients of a round take with fixed and with adaptive steps: the paper's figure 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from heroes.report.page import ABSENT
from heroes.report.runs import RunData
from heroes.report.study_plots import times_of_a_round
from heroes.studies.figures import Chapter
from heroes.studies.tables import Outcome
from heroes.studies.telling.evidence import Evidence
from heroes.studies.telling.markdown import grid, percent
from heroes.studies.telling.paper import paper
from heroes.studies.telling.pictures import RANKED

_LESS = 1 / 3  # of the idle time with fixed steps: so little is nearly none


@dataclass(frozen=True)
class Idle:
    """In an average round: the slowest client over the fastest, the idle share of the fastest and of all."""

    slowest: float
    fastest_idle: float
    idle: float

    @staticmethod
    def of(runs: Sequence[RunData]) -> Idle | None:
        tables = [table for run in runs if len(table := times_of_a_round(run))]
        if not tables:
            return None
        rounds = [line for table in tables for line in table]
        return Idle(
            fmean(line[-1] / line[0] for line in rounds),
            fmean(1 - line[0] / line[-1] for line in rounds),
            fmean(1 - line.mean() / line[-1] for line in rounds),
        )


def _known(chapter: Chapter) -> dict[str, Idle]:
    rows: dict[str, Outcome] = {each.label: each for each in chapter.outcomes}
    found = {name: Idle.of(rows[name].runs) for name in RANKED if name in rows and rows[name].runs}
    return {name: idle for name, idle in found.items() if idle is not None}


def judged(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """The line of the table of verdicts."""
    said, known = paper().said, _known(evidence.figures["motivation"][0])
    claim = (
        f"With the same steps for all, the slowest client takes {said.fastest_to_slowest:.0f}x as long as "
        f"the fastest, which idles {percent(said.idle)} of the round; with adaptive steps hardly anyone idles"
    )
    told = "; ".join(
        f"{name} {idle.slowest:.1f}x, {percent(idle.fastest_idle)} idle" for name, idle in known.items()
    )
    fixed, adaptive = [name for name in RANKED[:-1] if name in known], known.get(RANKED[-1])
    if adaptive is None or not fixed:
        yield (claim, said.idle_where, told or ABSENT, "no runs yet", "")
        return
    least, idle = min(known[name].fastest_idle for name in fixed), adaptive.fastest_idle
    holds = "yes" if idle <= _LESS * least else "in part" if idle < least else "no"
    yield (claim, said.idle_where, told, holds, "Idle is the fastest client, of the round.")


def lines(of_plan: Sequence[Chapter]) -> Iterator[str]:
    """The table behind it."""
    for chapter in of_plan:
        rows = [
            (name, f"{idle.slowest:.2f}x", percent(idle.fastest_idle), percent(idle.idle))
            for name, idle in _known(chapter).items()
        ]
        yield from ("**The clients of a round**", "")
        yield from grid(("", "slowest to fastest", "the fastest idles", "all idle on average"), rows)
        yield ""
