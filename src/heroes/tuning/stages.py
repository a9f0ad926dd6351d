"""The search without a grid of one's own: the same few stages for every strategy.

First learning rates at twenty local steps, then ten and fifty steps at each strategy's best rate. If the best
rate or number of steps of any strategy lies at an edge, all strategies try one more on that side. Then every
way a strategy knows to limit steps, then what it says itself is worth a try. Nothing here knows one by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heroes.settings.config import Config, choices
from heroes.settings.tuned_files import Settings
from heroes.tuning.grids import Grid, combinations

RATE = "training.learning_rate"
RATES = (0.03, 0.1, 0.2)
TAUS = (20, 10, 50)  # the first goes with all rates
_LIMIT = "step_limit"


@dataclass(frozen=True)
class Stage:
    """What each strategy tries next, by its name, and how many combinations are expected after that."""

    tries: Mapping[str, Sequence[Settings]]
    later: int = 0


Best = Callable[[str], Settings | None]
"""the best settings of a strategy so far; None if none of them has a score"""


def crossed(bases: Mapping[str, Config], grid: Grid) -> Iterator[Stage]:
    """Every combination of a grid for every strategy, in one stage."""
    yield Stage({name: combinations(grid) for name in bases})


def staged(bases: Mapping[str, Config], best: Best) -> Iterator[Stage]:
    """The stages; each is tried by all before the next is asked for."""
    taus = {name: key for name, config in bases.items() if (key := tau_key(config))}
    limits = {name: {f"strategy.{_LIMIT}": step_limits(config)} for name, config in bases.items()}
    own = {name: config.strategy.tries for name, config in bases.items() if config.strategy.tries}
    for_own = sum(len(combinations(grid)) for grid in own.values())
    for_limits = for_own + sum(max(0, len(words) - 1) for (words,) in map(dict.values, limits.values()))
    for_taus = for_limits + len(taus) * (len(TAUS) - 1)

    def at_rates(rates: Sequence[float]) -> dict[str, list[Settings]]:
        steps = {
            name: {taus[name]: within(bases[name], TAUS[:1])[0]} if name in taus else {} for name in bases
        }
        return {name: [{RATE: rate, **steps[name]} for rate in rates] for name in bases}

    def at_taus(values: Sequence[float]) -> dict[str, list[Settings]]:
        return at_best({name: {key: within(bases[name], values)} for name, key in taus.items()})

    def at_best(grids: Mapping[str, Grid]) -> dict[str, list[Settings]]:
        found = {name: best(name) for name in grids}
        return {
            name: [{**settings, **each} for each in combinations(grids[name])]
            for name, settings in found.items()
            if settings is not None
        }

    yield Stage(at_rates(RATES), for_taus)
    yield Stage(at_rates(beyond(RATES, [found[RATE] for found in map(best, bases) if found])), for_taus)
    yield Stage(at_taus(TAUS[1:]), for_limits)
    bests = [found[key] for name, key in taus.items() if (found := best(name))]
    yield Stage(at_taus(beyond(sorted(TAUS), bests)), for_limits)
    yield Stage(at_best(limits), for_own)
    yield Stage(at_best(own))


def beyond(tried: Sequence[float], best: Sequence[float]) -> list[float]:
    """The values that the grid grows by: one more on each side at whose edge somebody's best value lies.

    >>> beyond((0.03, 0.1, 0.2), [0.1, 0.2]), beyond((0.03, 0.1, 0.2), [0.03, 0.2])
    ([0.4], [0.009, 0.4])
    """
    low = [tried[0] ** 2 / tried[1]] if tried[0] in best else []
    high = [tried[-1] ** 2 / tried[-2]] if tried[-1] in best else []
    return [float(f"{value:.2g}") for value in low + high]


def within(config: Config, taus: Sequence[float]) -> list[int]:
    """These numbers of local steps, none above what the strategy allows, each once."""
    most = getattr(config.strategy, "tau_max", math.inf)
    return list(dict.fromkeys(int(min(tau, most)) for tau in taus))


def tau_key(config: Config) -> str | None:
    """The key of a strategy's local steps, if it has one that tells."""
    name = config.strategy.steps_key
    return None if name is None else f"strategy.{name}"


def step_limits(config: Config) -> list[Any]:
    """The ways in which a strategy can limit steps, where there are widths to choose from."""
    field = type(config.strategy).model_fields.get(_LIMIT)
    words = choices(field.annotation) if field is not None and config.model.max_width > 1 else []
    return words if len(words) > 1 else []
