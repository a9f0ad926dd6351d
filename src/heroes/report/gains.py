"""How many times faster the reference strategy is than each other one, and how much less it sends and uses.

Every ratio is taken between two runs with the same seed. Over seeds, and over several strategies, ratios are
averaged geometrically, so that one very slow strategy does not rule the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean

from heroes.report.comparison import BEST, MEAN, RATIOS, Measure
from heroes.report.measures import Ratios, Spread
from heroes.report.runs import Group, different_worlds

# the seconds, the traffic or the energy that a group's runs took to a target; None: not known
Costs = Callable[[Group, str, float], Spread | None]
Ratio = Mapping[int, float | None]  # by seed; None if one of the two runs did not reach the target


def gains(
    groups: Sequence[Group], reference: str, targets: Sequence[float], costs: Costs
) -> tuple[list[Measure], list[str]]:
    """The ratios of the other strategies' costs to the reference's, and notes on what cannot be compared.

    Only groups in the same world (data, fleet, faults, clients, tests) are compared. If there are several
    groups of the reference, the first one counts; the others are compared with it, but are not rivals.
    """
    measures: list[Measure] = []
    notes = different_worlds(groups)
    for world in dict.fromkeys(group.world for group in groups):
        together = [group for group in groups if group.world == world]
        own = next((group for group in together if group.strategy == reference), None)
        if own is None:
            labels = ", ".join(group.label for group in together)
            notes.append(f"no run of {reference} to compare with {labels}")
            continue
        others = [group for group in together if group is not own]
        alone = [other.label for other in others if not set(other.seeds) & set(own.seeds)]
        notes += [f"{label} and {own.label} have no seed in common, so no ratio is given" for label in alone]
        paired = [other for other in others if other.label not in alone]
        measures += [each for target in targets for each in _against(own, paired, target, costs)]
    return measures, notes


def _against(own: Group, others: Sequence[Group], target: float, costs: Costs) -> list[Measure]:
    """The ratios to every other group, to the best other strategy, and to all of them on average."""
    measures = []
    for what, cost in RATIOS.items():
        known = {group.label: _by_seed(group, costs(group, cost, target)) for group in (own, *others)}
        mine = known.pop(own.label)
        each = {label: _ratio(mine, theirs) for label, theirs in known.items() if mine and theirs}
        same = {other.label for other in others if other.strategy == own.strategy}
        rivals = [ratio for label, ratio in each.items() if label not in same]
        if len(rivals) > 1:
            each |= {BEST: _best(rivals), MEAN: _mean(rivals)}
        measures += [
            Measure(own.label, what, "times", Ratios(tuple(ratio.values())), target, label)
            for label, ratio in each.items()
        ]
    return measures


def _by_seed(group: Group, costs: Spread | None) -> Ratio:
    return {} if costs is None else dict(zip(group.seeds, costs.values, strict=True))


def _ratio(mine: Ratio, theirs: Ratio) -> Ratio:
    """Their cost over mine, for every seed that both have."""
    return {seed: _quotient(theirs[seed], cost) for seed, cost in mine.items() if seed in theirs}


def _quotient(theirs: float | None, mine: float | None) -> float | None:
    return theirs / mine if theirs and mine else None


def _best(rivals: Sequence[Ratio]) -> Ratio:
    """The rival that reached the target with most seeds, and of those the one with the lowest ratio."""

    def rank(rival: Ratio) -> tuple[int, float]:
        known = [ratio for ratio in rival.values() if ratio is not None]
        return -len(known), geometric_mean(known) if known else 0.0

    return min(rivals, key=rank)


def _mean(rivals: Sequence[Ratio]) -> Ratio:
    """The geometric mean over all rivals, for the seeds that all have; None if one did not get there."""
    shared = [seed for seed in rivals[0] if all(seed in rival for rival in rivals)]
    return {seed: _geometric([rival[seed] for rival in rivals]) for seed in shared}


def _geometric(ratios: Sequence[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return geometric_mean(known) if len(known) == len(ratios) else None
