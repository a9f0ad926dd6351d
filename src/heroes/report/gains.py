"""What the reference strategy saved against the others. Runs with the same seed are paired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from heroes.report.comparison import MEAN_OF_OTHERS, Measure
from heroes.report.measures import Spread
from heroes.report.runs import Group

Costs = Callable[[Group, str, float], Spread]  # what a group's runs spent: of seconds or traffic, to a target


def gains(
    groups: Sequence[Group], reference: str, targets: Sequence[float], costs: Costs
) -> tuple[list[Measure], list[str]]:
    """Speed-up and traffic saved by the reference strategy, and notes.

    Groups are compared within the same world (data, fleet, clients). Of several groups of the reference
    there, the first one counts and the others are compared with it, but are no part of the mean.
    """
    measures: list[Measure] = []
    notes: list[str] = []
    for world in dict.fromkeys(group.world for group in groups):
        together = [group for group in groups if group.world == world]
        own = next((group for group in together if group.strategy == reference), None)
        if own is None:
            labels = ", ".join(group.label for group in together)
            notes.append(f"no run of {reference} to compare with {labels}")
            continue
        others = [group for group in together if group is not own]
        alone = [other.label for other in others if not set(other.seeds) & set(own.seeds)]
        notes += [
            f"{label} and {own.label} have no seed in common; their savings are not computed"
            for label in alone
        ]
        paired = [other for other in others if other.label not in alone]
        measures += [each for target in targets for each in _against(own, paired, target, costs)]
    return measures, notes


def _against(own: Group, others: Sequence[Group], target: float, costs: Costs) -> list[Measure]:
    rivals = {other.label: [other] for other in others}
    foreign = [other for other in others if other.strategy != own.strategy]
    if len(foreign) > 1:
        rivals[MEAN_OF_OTHERS] = foreign
    measures = []
    for label, members in rivals.items():
        faster = _paired(
            own, members, lambda group: costs(group, "seconds", target), lambda mine, other: other / mine
        )
        saved = _paired(
            own, members, lambda group: costs(group, "traffic", target), lambda mine, other: 1 - mine / other
        )
        measures.append(Measure(own.label, "speed-up", "times", faster, target, label))
        measures.append(Measure(own.label, "traffic saved", "", saved, target, label))
    return measures


def _paired(
    reference: Group,
    others: Sequence[Group],
    cost: Callable[[Group], Spread],
    gain: Callable[[float, float], float],
) -> Spread:
    """The gain for every seed that all have; None if one of them did not reach the target."""
    own = dict(zip(reference.seeds, cost(reference).values, strict=True))
    theirs = [dict(zip(other.seeds, cost(other).values, strict=True)) for other in others]
    shared = [seed for seed in own if all(seed in each for each in theirs)]
    return Spread(tuple(_gain(own[seed], [each[seed] for each in theirs], gain) for seed in shared))


def _gain(
    own: float | None, theirs: Sequence[float | None], gain: Callable[[float, float], float]
) -> float | None:
    reached = [value for value in theirs if value is not None]
    if own is None or len(reached) < len(theirs):
        return None
    return gain(own, fmean(reached)) if own > 0 and fmean(reached) > 0 else None
