"""FedAvgM, FedAdam, FedYogi: FedAvg with a step of the server's own, by name."""

from __future__ import annotations

import pytest

from heroes.errors import ConfigError
from heroes.settings.config import Config, parse
from heroes.settings.recipes import EXPERIMENTS, recipe
from heroes.settings.toml_files import load
from heroes.strategies.registry import BUILT_IN

STEPS = {name: kind.requires for name, kind in BUILT_IN.items() if "optimiser.name" in kind.requires}


def test_there_are_three() -> None:
    assert {name: wanted["optimiser.name"] for name, wanted in STEPS.items()} == {
        "fedadam": "adam",
        "fedavgm": "momentum",
        "fedyogi": "yogi",
    }


@pytest.mark.parametrize("name", STEPS)
def test_the_name_brings_its_optimiser_and_takes_it_away_again(name: str) -> None:
    wanted = STEPS[name]["optimiser.name"]
    for config in (recipe("digits", name), Config().changed({"strategy.name": name})):
        assert config.optimiser.name == wanted
        assert config.with_strategy("fedavg").optimiser.name == Config().optimiser.name
        for other, requires in STEPS.items():
            assert config.with_strategy(other).optimiser.name == requires["optimiser.name"]
        assert config.changed({"optimiser.rate": 0.5}).optimiser.rate == 0.5


@pytest.mark.parametrize("name", STEPS)
def test_a_file_needs_the_name_only(name: str, tmp_path) -> None:
    (tmp_path / "x.toml").write_text(
        f'experiment = "digits"\n[strategy]\nname = "{name}"\n[optimiser]\nrate = 0.1\n'
    )
    config = load(tmp_path / "x.toml", EXPERIMENTS)
    assert (config.optimiser.name, config.optimiser.rate) == (STEPS[name]["optimiser.name"], 0.1)


@pytest.mark.parametrize("name", STEPS)
def test_with_another_optimiser_it_would_be_another_strategy(name: str) -> None:
    wanted = STEPS[name]["optimiser.name"]
    said = f"strategy.name is '{name}', which needs optimiser.name = '{wanted}', not 'none'"
    with pytest.raises(ConfigError, match=said):
        Config().changed({"strategy.name": name, "optimiser.name": "none"})
    with pytest.raises(ConfigError, match=said):
        parse({"strategy": {"name": name}})


@pytest.mark.parametrize("name", STEPS)
def test_it_is_fedavg_with_that_optimiser_to_the_bit(world, name: str) -> None:
    import torch

    from heroes.federation import Stop
    from heroes.rounds import run

    *_, (named, one) = run(world.assembled(name), Stop(3))
    *_, (plain, two) = run(world.assembled("fedavg", dict(STEPS[name])), Stop(3))
    *_, (without, _) = run(world.assembled("fedavg"), Stop(3))
    assert one == two
    assert all(torch.equal(value, plain.tensors[key]) for key, value in named.tensors.items())
    assert any(not torch.equal(value, without.tensors[key]) for key, value in named.tensors.items())
