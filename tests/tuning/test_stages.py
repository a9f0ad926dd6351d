"""Which settings are tried: the same for all, the grid growing once, and what a strategy has read off its
fields."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator

from heroes.errors import ConfigError
from heroes.settings.config import Config
from heroes.settings.recipes import recipe
from heroes.strategies.base import SameTau, Strategy
from heroes.strategies.registry import BUILT_IN
from heroes.tuning.grids import combinations, parse_grid
from heroes.tuning.stages import RATE, crossed, staged, step_limits, tau_key

BASES = {name: recipe("digits", name) for name in BUILT_IN}


class Limited(SameTau):
    """A strategy with two ways to limit steps."""

    name: Literal["limited"] = "limited"
    """the strategy"""
    step_limit: Annotated[float | Literal["shared", "own"], BeforeValidator(lambda given: given)] = "shared"
    """the limit"""


class Plain(Strategy):
    """A strategy without local steps to choose."""

    name: Literal["plain"] = "plain"
    """the strategy"""

    def assign(self, state: Any, cohort: Any) -> Any:
        raise NotImplementedError


def at(name: str, rate: float, tau: int) -> dict[str, Any]:
    key = tau_key(BASES[name])
    return {RATE: rate} | ({key: tau} if key else {})


def tries(bases: Mapping[str, Config], best: Mapping[str, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    return [dict(stage.tries) for stage in staged(bases, lambda name: best[name])]


def test_every_strategy_gets_the_same_rates_at_twenty_steps_then_ten_and_fifty() -> None:
    best = {name: at(name, 0.1, 20) for name in BASES}
    rates, grown, taus, *_ = tries(BASES, best)
    told = {name for name, config in BASES.items() if tau_key(config)}
    assert set(rates) == set(BASES)
    assert set(taus) == told
    assert not any(grown.values())
    assert {name: rates[name] for name in BASES if name not in told} == {
        "heroes": [{RATE: rate} for rate in (0.03, 0.1, 0.2)]  # its pace is not a setting
    }
    for name in told:
        key = tau_key(BASES[name])
        assert key in ("strategy.tau", "strategy.tau_first")
        assert rates[name] == [{RATE: rate, key: 20} for rate in (0.03, 0.1, 0.2)]
        assert taus[name] == [{RATE: 0.1, key: tau} for tau in (10, 50)]


@pytest.mark.parametrize(("edge", "more"), [(0.2, 0.4), (0.03, 0.009)])
def test_a_best_rate_at_an_edge_gives_all_strategies_one_more(edge: float, more: float) -> None:
    names = list(BASES)
    best = {name: at(name, edge if name == names[-1] else 0.1, 20) for name in names}
    _, grown, *_ = tries(BASES, best)
    assert {name: [each[RATE] for each in tried] for name, tried in grown.items()} == {
        name: [more] for name in names
    }


def test_a_strategy_without_a_score_neither_grows_the_grid_nor_goes_on() -> None:
    names = list(BASES)
    best = {name: None if name == names[0] else at(name, 0.1, 20) for name in names}
    _, grown, taus, *_ = tries(BASES, best)
    assert not any(grown.values())
    assert set(taus) == {name for name in names[1:] if tau_key(BASES[name])}


def test_step_limits_are_tried_at_the_best_rate_and_steps_where_there_are_widths() -> None:
    base = recipe("digits").with_strategy(Limited())
    found = {RATE: 0.2, "strategy.tau": 50}
    *_, limits, _ = tries({"limited": base}, {"limited": found})
    assert limits == {
        "limited": [{**found, "strategy.step_limit": "shared"}, {**found, "strategy.step_limit": "own"}]
    }
    assert (
        step_limits(base.model_copy(update={"model": base.model.model_copy(update={"max_width": 1})})) == []
    )


def test_a_strategy_without_local_steps_tries_rates_only() -> None:
    base = recipe("digits").with_strategy(Plain())
    rates, *later = tries({"plain": base}, {"plain": {RATE: 0.1}})
    assert rates == {"plain": [{RATE: rate} for rate in (0.03, 0.1, 0.2)]}
    assert not any(tried for stage in later for tried in stage.values())


@pytest.mark.parametrize(("edge", "more"), [(10, 5), (50, 120)])
def test_best_steps_at_an_edge_give_all_strategies_one_more(edge: int, more: int) -> None:
    names = [name for name, config in BASES.items() if tau_key(config)]
    best = {name: at(name, 0.1, edge if name == names[-1] else 20) for name in BASES}
    grown = tries(BASES, best)[3]
    assert {name: [each[tau_key(BASES[name])] for each in tried] for name, tried in grown.items()} == {
        name: [min(more, getattr(BASES[name].strategy, "tau_max", more))] for name in names
    }
    assert all(
        BASES[name].changed(settings) for name, tried in grown.items() for settings in tried
    )  # each takes it


def test_what_a_strategy_says_is_worth_a_try_is_tried_last_at_its_best_settings() -> None:
    found = at("fedavgm", 0.1, 10)
    *_, own = tries(
        {"fedavgm": BASES["fedavgm"], "fedavg": BASES["fedavg"]}, {"fedavgm": found, "fedavg": {}}
    )
    assert own == {"fedavgm": [{**found, **each} for each in combinations(BASES["fedavgm"].strategy.tries)]}
    assert len(own["fedavgm"]) == 4


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_strategy_can_be_configured_as_it_says_is_worth_a_try(name: str) -> None:
    for settings in combinations(BASES[name].strategy.tries):
        BASES[name].changed(settings)


def test_what_is_left_is_counted() -> None:
    stages = list(staged(BASES, lambda name: at(name, 0.1, 20)))
    own = sum(len(combinations(config.strategy.tries)) for config in BASES.values() if config.strategy.tries)
    limits = own + sum(max(0, len(step_limits(config)) - 1) for config in BASES.values())
    steps = limits + 2 * sum(tau_key(config) is not None for config in BASES.values())
    assert [stage.later for stage in stages] == [steps] * 2 + [limits] * 2 + [own, 0]


def test_a_grid_is_crossed_for_every_strategy() -> None:
    grid = parse_grid(["training.momentum=0,0.9", "training.batch_size=8,16"])
    (stage,) = crossed(BASES, grid)
    assert stage.tries == {name: combinations(grid) for name in BASES}
    assert len(combinations(grid)) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training.momentum", "--grid is 'training.momentum'; write a key and its values"),
        ("training.momentum=", "write a key and its values"),
        ("training.momentum= , ,", "write a key and its values"),
        ("=0.1", "write a key and its values"),
        ("seed=1,2", "an option of its own: --seeds"),
        ("strategy.name=fedavg", "an option of its own: --strategies"),
    ],
)
def test_a_wrong_grid_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_grid([text])


def test_a_key_may_be_there_once_and_values_count_once() -> None:
    with pytest.raises(ConfigError, match=r"'training\.momentum' twice"):
        parse_grid(["training.momentum=0.5", "training.momentum=0.9"])
    assert parse_grid(["training.clip=none,2.0,none,"]) == {"training.clip": ["none", 2.0]}
