from __future__ import annotations

from pathlib import Path

import pytest

from heroes.errors import ConfigError
from heroes.settings.config import Config
from heroes.settings.recipes import EXPERIMENTS, recipe
from heroes.settings.toml_files import load, text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def loaded(file: Path, content: str, strategy: str | None = None) -> Config:
    file.write_text(content)
    return load(file, EXPERIMENTS, strategy)


def test_a_file_starts_from_its_experiments_recipe(file: Path) -> None:
    config = loaded(file, 'experiment = "cifar10"\n[training]\nmomentum = 0.5\n')
    assert config == recipe("cifar10").changed({"training.momentum": 0.5})


def test_an_experiment_of_ones_own_says_what_it_starts_from(file: Path) -> None:
    config = loaded(file, 'base = "cifar10"\nexperiment = "night shift"\n')
    assert config == recipe("cifar10").changed({"experiment": "night shift"})
    assert loaded(file, 'base = "cifar10"\n') == recipe("cifar10")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            'experiment = "cifr10"\n',
            r"unknown experiment 'cifr10' in .*mine\.toml.*mean 'cifar10'.*base = \"dig",
        ),
        ('task = "cifr10"\n', "did you mean 'cifar10'"),
        ('base = "cifr10"\n', r"base is 'cifr10' in .*mine\.toml.*mean 'cifar10'"),
        (
            "seed = 3\n",
            r"mine\.toml' says no experiment: begin it with experiment = \"digits\" .*base = \"digits\"",
        ),
        ('task = "digits"\nexperiment = "cifar10"\n', "unknown key 'task'"),
    ],
)
def test_a_file_that_starts_from_nothing_is_refused(file: Path, content: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(file, content)


def test_a_whole_file_may_have_any_name(file: Path) -> None:
    config = recipe("cifar10", "flanc").changed({"experiment": "clouds", "seed": 7})
    whole = text(config)
    assert loaded(file, whole) == config
    without_seed = whole.replace("seed = 7\n", "")
    assert loaded(file, without_seed) == config.changed({"seed": 0})  # as a Flower app's is
    for left_out in ("clients = 100\n", 'experiment = "clouds"\n'):
        with pytest.raises(ConfigError, match="experiment"):
            loaded(file, without_seed.replace(left_out, ""))
    with pytest.raises(ConfigError, match="unknown experiment 'clouds'"):
        loaded(file, whole.partition("\n")[2])


def test_a_whole_file_can_be_run_with_another_strategy(file: Path) -> None:
    config = recipe("cifar10", "flanc").changed({"experiment": "clouds"})
    assert loaded(file, text(config), "fedavg") == config.with_strategy("fedavg")


def test_files_that_say_task_still_load(file: Path) -> None:
    assert loaded(file, 'task = "cifar10"\n') == recipe("cifar10")
    assert loaded(file, 'base = "cifar10"\ntask = "mine"\n').experiment == "mine"


def test_a_file_that_names_another_strategy_leaves_the_recipes_settings_behind(file: Path) -> None:
    config = loaded(file, 'experiment = "digits"\n[strategy]\nname = "flanc"\ntau = 3\n')
    assert config.strategy.model_dump()["tau"] == 3
    # as the recipe has it for this strategy
    recipes = recipe("cifar10", "fedavg").strategy
    assert loaded(file, 'experiment = "cifar10"\n', "fedavg").strategy == recipes
    pyramid = 'experiment = "digits"\n[strategy]\nname = "pyramidfl"\n'
    assert loaded(file, pyramid).training.learning_rate == 0.03
    assert loaded(file, pyramid, "heroes").strategy.name == "heroes"


@pytest.mark.parametrize(
    "content", [b"experiment = ", b"\xff\xfe", b"[training]\nmomentum = 0.5\nmomentum = 0.6\n"]
)
def test_a_file_that_is_not_toml_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="as TOML"):
        load(file, EXPERIMENTS)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*gone\.toml"):
        load(tmp_path / "gone.toml", EXPERIMENTS)
