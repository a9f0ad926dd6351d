"""The figures of the evaluation: which plan has the runs of each, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from heroes.errors import ConfigError, did_you_mean
from heroes.report import Comparison, compare
from heroes.studies import plans
from heroes.studies.kept import Store
from heroes.studies.making import outcomes
from heroes.studies.tables import Outcome

FIGURES = {
    "accuracy": "accuracy",
    "waiting": "accuracy",
    "resources": "accuracy",
    "accuracy-70": "accuracy-70",
    "noniid": "noniid",
    "text": "text",
    "images": "images",
    "motivation": "motivation",
    "literal": "literal",
    "ablation": "ablation",
    "worlds": "worlds",
    "field": "field",
    "field-cifar10": "field-cifar10",
}
"""which plan has the runs of a figure"""


@dataclass(frozen=True)
class Chapter:
    """What is kept of one variant of a plan; `found` is None if that is nothing."""

    plan: plans.Plan
    variant: str
    outcomes: tuple[Outcome, ...]
    found: Comparison | None

    @property
    def absent(self) -> list[str]:
        """Which rows lack runs, those that have as many in one note."""
        short: dict[str, list[str]] = {}
        for each in self.outcomes:
            if len(each.runs) < each.wanted:
                short.setdefault(f"{len(each.runs)} of {each.wanted} runs", []).append(each.label)
        every = len(self.outcomes)
        return [
            f"{'every row' if len(rows) == every else ', '.join(rows)}: {counts}"
            for counts, rows in short.items()
        ]


def wanted(figures: Sequence[str]) -> list[str]:
    """The plans of these figures, each once; the word `all` stands for all of them."""
    for alone in ("list", "all", "page"):
        if alone in figures and len(figures) > 1:
            raise ConfigError(f"{alone!r} stands for itself; leave out the others, or leave it out")
    for figure in figures:
        if figure not in FIGURES and list(figures) != ["all"]:
            known = did_you_mean(figure, [*FIGURES, "list", "all", "page"])
            raise ConfigError(f"there is no figure {figure!r}: {known}")
    chosen = FIGURES if list(figures) == ["all"] else figures
    return list(dict.fromkeys(FIGURES[figure] for figure in chosen))


def plan_of(name: str, scale: str = "small", seeds: Sequence[int] | None = None) -> plans.Plan:
    """A plan at a scale, with its own seeds or others."""
    plan = plans.read_file(plans.FIGURES / f"{name}.toml").at(scale)
    return plan if seeds is None else plan.model_copy(update={"seeds": tuple(seeds)})


def chapters(plan: plans.Plan, store: Store) -> Iterator[Chapter]:
    """What is kept of a plan, one chapter for each variant."""
    for variant in plan.variants:
        rows = tuple(outcomes(list(plans.rows(plan, variant)), store))
        runs = [replace(run, row=outcome.label) for outcome in rows for run in outcome.runs]
        found = compare(runs, targets=plan.targets or None) if runs else None
        yield Chapter(plan, variant, rows, found)
