"""Where Heroes is not ahead: every rival that takes less time, traffic or energy with at least one seed."""

from __future__ import annotations

from collections.abc import Iterator

from heroes.report import Comparison
from heroes.report.comparison import LESS_ENERGY, LESS_TRAFFIC, SPEED_UP
from heroes.report.measures import ratio
from heroes.strategies.registry import DEFAULT
from heroes.studies.telling.evidence import Evidence, ours

_TAKES = {SPEED_UP: "takes {} of the time", LESS_TRAFFIC: "sends {}", LESS_ENERGY: "uses {} of the energy"}


def behind(evidence: Evidence) -> Iterator[str]:
    """A line for each comparison in which there is such a rival, at the hardest target that both reached."""
    told = [
        f"- {', '.join(filter(None, [f'`{name}`', chapter.variant]))}: {'; '.join(lines)}."
        for name, of_plan in evidence.figures.items()
        for chapter in of_plan
        if chapter.found is not None and (lines := list(_behind(chapter.found)))
    ]
    yield from told or ["Nowhere: no rival takes less time, traffic or energy than Heroes to any target."]


def _behind(found: Comparison) -> Iterator[str]:
    own = ours(found)
    for rival in (group.label for group in found.groups if group.strategy != DEFAULT):
        for what, takes in _TAKES.items():
            target, spread = found.hardest(own, what, rival) or (0.0, None)
            if spread is not None and min(spread.reached) < 1:
                yield f"{rival} {takes.format(spread.text(ratio, unit='x'))} to {found.metric.target(target)}"
