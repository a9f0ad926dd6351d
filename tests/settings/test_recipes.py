"""Recipes are valid, repeatable and tell strategys apart."""

import tomllib

import pytest

from heroes.errors import ConfigError
from heroes.settings import recipes
from heroes.settings.config import parse, to_toml
from heroes.strategies.registry import BUILT_IN


@pytest.mark.parametrize("experiment", recipes.EXPERIMENTS)
@pytest.mark.parametrize("strategy", BUILT_IN)
def test_every_experiment_has_a_configuration_for_every_strategy(experiment: str, strategy: str) -> None:
    config = recipes.recipe(experiment, strategy)
    assert (config.experiment, config.strategy.name) == (experiment, strategy)
    assert parse(tomllib.loads(to_toml(config))) == config


def test_the_papers_settings_are_as_its_text_has_them() -> None:
    config = recipes.paper("cifar10")
    assert (config.strategy.blocks, config.strategy.pace, config.strategy.deadline) == (
        "free",
        "bound",
        "fastest",
    )
    assert (config.model.norm, config.training.train_in, config.exchange.up_bits) == ("none", "weights", 32)


@pytest.mark.parametrize("experiment", recipes.EXPERIMENTS)
def test_what_goes_with_a_strategy_is_in_its_experiments_and_in_no_others(experiment: str) -> None:
    ours, theirs = recipes.recipe(experiment, "heroes"), recipes.recipe(experiment, "fedavg")
    assert (ours.exchange.up_bits, ours.optimiser.name, ours.evaluation.average) == (4, "momentum", 0.8)
    assert (theirs.optimiser.name, theirs.evaluation.average) == ("none", 0.0)
    literal = recipes.paper(experiment)
    assert (literal.exchange.down_bits, literal.optimiser.name, literal.strategy.any_width) == (32, "none", 0)


def test_heterofl_knows_of_missing_classes_where_clients_lack_some() -> None:
    on = {
        experiment: (config.strategy.mask_absent_labels, config.strategy.label_split)
        for experiment in recipes.EXPERIMENTS
        for config in [recipes.recipe(experiment, "heterofl")]
    }
    assert on.pop("imagenet100") == (True, True)
    assert set(on.values()) == {(False, False)}


def test_rounds_and_seed_are_arguments() -> None:
    config = recipes.cifar10(rounds=7, seed=3)
    assert (config.federation.rounds, config.seed) == (7, 3)


def test_an_unknown_task_or_strategy_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'cifar10'"):
        recipes.recipe("cifar")
    with pytest.raises(ConfigError, match="did you mean 'flanc'"):
        recipes.recipe("digits", "flank")
