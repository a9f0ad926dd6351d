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
