"""Files of tuned settings: what comes with the experiments, and that what is written is read back."""

from pathlib import Path
from typing import Literal

import pytest

from heroes.errors import ConfigError
from heroes.settings import tuned_files
from heroes.settings.config import Config
from heroes.settings.recipes import EXPERIMENTS, recipe, tuned
from heroes.strategies.base import SameTau
from heroes.strategies.registry import BUILT_IN

TUNED = [name for name in EXPERIMENTS if name not in ("images", "table", "text")]  # of data that is known


@pytest.mark.parametrize("experiment", TUNED)
@pytest.mark.parametrize("strategy", BUILT_IN)
def test_what_comes_with_an_experiment_is_in_its_recipe(experiment: str, strategy: str) -> None:
    assert tuned_files.shipped(experiment), f"{experiment} has no file"
    given = tuned_files.shipped(experiment).get(strategy, {})
    config = recipe(experiment, strategy)
    assert config.changed(given) == config


def test_every_shipped_file_is_of_an_experiment_and_says_where_it_comes_from() -> None:
    files = list(Path(tuned_files.__file__).with_name("tuned").iterdir())
    assert {file.stem for file in files} == set(TUNED)
    for file in files:
        assert "heroes tune" in file.read_text().partition("[")[0]


def test_an_own_strategy_says_itself_what_suits_it() -> None:
    class Own(SameTau):
        """A strategy of a user's own."""

        name: Literal["own_one"] = "own_one"
        tuned = {"digits": {"training.momentum": 0.5}}  # noqa: RUF012

    assert tuned("digits", Own()) == {"training.momentum": 0.5}
    assert tuned("cifar10", Own()) == {}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    given = {"fedavg": {"training.clip": "none", "fleet.upload": [1.5, 2.0], "strategy.tau": 3}, "heroes": {}}
    (tmp_path / "x.toml").write_text(tuned_files.text(given, "made by\nhand"))
    assert tuned_files.read(tmp_path / "x.toml") == given
    config = tuned_files.applied(recipe("digits", "fedavg"), tmp_path / "x.toml", given)
    assert (config.training.clip, config.fleet.upload, config.strategy) == (
        None,
        (1.5, 2.0),
        type(config.strategy)(tau=3),
    )
    assert tuned_files.applied(Config(), tmp_path / "x.toml", given) == Config()


def test_keys_may_be_written_as_sections_too(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[fedavg.training]\nmomentum = 0.5\n")
    assert tuned_files.read(tmp_path / "x.toml") == {"fedavg": {"training.momentum": 0.5}}


@pytest.mark.parametrize("experiment", ["nowhere", "../tuned/digits", "", "digits.toml"])
def test_an_experiment_without_a_file_has_none(experiment: str) -> None:
    assert tuned_files.shipped(experiment) == {}


def test_a_file_that_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file of settings"):
        tuned_files.read(tmp_path / "x.toml")
    with pytest.raises(ConfigError, match="cannot read"):
        tuned_files.read(tmp_path)
