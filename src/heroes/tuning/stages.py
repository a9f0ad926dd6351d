"""The search without a grid of one's own: the same few stages for every strategy.

First learning rates at twenty local steps. If the best rate of any strategy lies at an edge, all strategies
try one rate more on that side. Then ten and fifty steps at each strategy's best rate, then every way it knows
to limit steps. What a strategy has is read off its fields: nothing here knows one by name.
"""

from __future__ import annotations

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
    taus = {name: tau_key(config) for name, config in bases.items()}
    limits = {name: step_limits(config) for name, config in bases.items()}
    last = sum(len(words) - 1 for words in limits.values() if words)
    middle = sum(len(TAUS) - 1 for key in taus.values() if key)

    def at_rates(rates: Sequence[float]) -> dict[str, list[Settings]]:
        return {
            name: [{RATE: rate} | ({key: TAUS[0]} if key else {}) for rate in rates]
            for name, key in taus.items()
        }

    yield Stage(at_rates(RATES), middle + last)
    yield Stage(at_rates(beyond(RATES, [found[RATE] for found in map(best, bases) if found])), middle + last)
    yield Stage(
        {
            name: [{**found, key: tau} for tau in TAUS[1:]]
            for name, key in taus.items()
            if key and (found := best(name))
        },
        last,
    )
    yield Stage(
        {
            name: [{**found, f"strategy.{_LIMIT}": word} for word in words]
            for name, words in limits.items()
            if words and (found := best(name))
        }
    )


def beyond(rates: Sequence[float], best: Sequence[float]) -> list[float]:
    """The rates that the grid grows by: one more on each side at whose edge somebody's best rate lies.

    >>> beyond((0.03, 0.1, 0.2), [0.1, 0.2]), beyond((0.03, 0.1, 0.2), [0.03, 0.2])
    ([0.4], [0.009, 0.4])
    """
    low = [rates[0] ** 2 / rates[1]] if rates[0] in best else []
    high = [rates[-1] ** 2 / rates[-2]] if rates[-1] in best else []
    return [float(f"{rate:.2g}") for rate in low + high]


def tau_key(config: Config) -> str | None:
    """The key of a strategy's local steps, if it has one that tells."""
    name = config.strategy.steps_key
    return None if name is None else f"strategy.{name}"


def step_limits(config: Config) -> list[Any]:
    """The ways in which a strategy can limit steps, where there are widths to choose from."""
    field = type(config.strategy).model_fields.get(_LIMIT)
    words = choices(field.annotation) if field is not None and config.model.max_width > 1 else []
    return words if len(words) > 1 else []
