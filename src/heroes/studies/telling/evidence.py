"""Everything that is kept, read once for all pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from heroes.report import Comparison
from heroes.report.runs import RunData
from heroes.strategies.registry import DEFAULT
from heroes.studies import plans
from heroes.studies.figures import FIGURES, Chapter, chapters, plan_of
from heroes.studies.kept import Store
from heroes.studies.making import counted, outcomes
from heroes.studies.tables import Outcome


def ours(found: Comparison) -> str:
    """What the first row of Heroes is called in a comparison; nothing if there is none."""
    return next((group.label for group in found.groups if group.strategy == DEFAULT), "")


@dataclass(frozen=True)
class Evidence:
    """The kept runs by figure and by study."""

    store: Store
    scale: str = "small"

    @cached_property
    def figures(self) -> dict[str, list[Chapter]]:
        """The chapters of every plan of the evaluation, at this scale."""
        return {
            name: list(chapters(plan_of(name, self.scale), self.store))
            for name in dict.fromkeys(FIGURES.values())
        }

    @cached_property
    def studies(self) -> list[tuple[plans.Plan, dict[str, list[Outcome]]]]:
        """What is kept of every study, by variant."""
        every = [plans.read(name) for name in plans.names()]
        return [
            (plan, {v: list(outcomes(list(plans.rows(plan, v)), self.store)) for v in plan.variants})
            for plan in every
        ]

    def rows(self, plan: str) -> list[Outcome]:
        """The rows of a plan in all its variants."""
        return [outcome for chapter in self.figures[plan] for outcome in chapter.outcomes]

    def runs(self, plan: str) -> list[RunData]:
        """The runs of a plan that are there, each once."""
        return list({run.path: run for outcome in self.rows(plan) for run in outcome.runs}.values())

    def count(self, plan: str) -> tuple[int, int]:
        """How many runs of a plan are kept, and how many it has."""
        return counted(self.rows(plan))

    @cached_property
    def strays(self) -> int:
        """How many kept runs belong to no figure and no study: their settings are no longer asked for."""
        rows = [outcome for name in self.figures for outcome in self.rows(name)]
        rows += [each for _, variants in self.studies for some in variants.values() for each in some]
        return len(self.store.runs) - len({run.path for outcome in rows for run in outcome.runs})
