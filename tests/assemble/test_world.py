"""Data as the configuration shares it out, and what a run says of it."""

import numpy as np
import pytest
import torch

import heroes
from heroes.assemble.clients import torch_devices
from heroes.assemble.world import federated, fleet_kind
from heroes.data import Dataset, Examples
from heroes.errors import ConfigError
from heroes.fleet import Fleet
from heroes.settings.config import Config, parse


def rare(partition: str) -> list[str]:
    """What is said when 10 clients share 1,000 examples, of which 10 are of the rarest class."""
    labels = torch.from_numpy(np.repeat(np.arange(10), [10, *[110] * 9]))
    examples = Examples(torch.zeros(len(labels), 2), labels)
    config = parse({"data": {"partition": partition, "phi": 2}}).changed(
        {"federation.clients": 10, "federation.cohort": 2}
    )
    said: list[str] = []
    federated(config, Dataset(examples, examples), config.seed, lambda what, done, total: said.append(what))
    return said


@pytest.mark.parametrize("partition", ["gamma", "by_device", "missing"])
def test_a_split_that_leaves_examples_out_says_how_many_it_uses(partition: str) -> None:
    (said,) = rare(partition)
    assert said.startswith(f"{partition} uses ")
    assert " of 1,000 training examples" in said
    assert "'gamma_all'" in said


def test_gamma_by_the_number() -> None:
    assert rare("gamma")[0].startswith("gamma uses 100 of 1,000 training examples, since every client gets")


@pytest.mark.parametrize("partition", ["gamma_all", "iid", "dirichlet"])
def test_a_split_that_uses_everything_says_nothing(partition: str) -> None:
    assert rare(partition) == []


def test_the_digits_are_used_nearly_all_and_nothing_is_said() -> None:
    said: list[str] = []
    config = {"federation": {"clients": 40, "cohort": 1, "rounds": 1}, "engine": {"name": "in_process"}}
    heroes.run(parse(config), on_progress=lambda what, done, total: said.append(what))
    assert not [text for text in said if "training examples" in text]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [((), ["cuda:0", "cuda:1", "cuda:2"]), ((2,), ["cuda:2"]), ((2, 0), ["cuda:2", "cuda:0"])],
)
def test_engine_devices_chooses_among_the_gpus(monkeypatch, wanted, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    config = Config().changed({"training.device": "cuda", "engine.devices": wanted})
    assert [str(device) for device in torch_devices(config)] == found
    with pytest.raises(ConfigError, match=r"engine\.devices has 3, but this machine's GPUs are 0 to 2"):
        torch_devices(config.changed({"engine.devices": (0, 3)}))


def test_engine_devices_without_gpus_is_a_mistake():
    config = Config().changed({"training.device": "cpu", "engine.devices": (0,)})
    with pytest.raises(ConfigError, match=r"engine\.devices is \[0\], but clients train on cpu"):
        torch_devices(config)


def test_shares_say_how_many_clients_each_device_has() -> None:
    config = Config().changed({"fleet.name": "paper", "fleet.shares": [10, 5, 4, 1]})
    fleet = Fleet(fleet_kind(config), 100, 0)
    assert np.bincount(fleet.device_of).tolist() == [50, 25, 20, 5]


def test_shares_that_do_not_fit_the_fleet_name_its_devices() -> None:
    config = Config().changed({"fleet.name": "paper", "fleet.shares": [1, 1]})
    with pytest.raises(ConfigError, match="has 2 numbers; the fleet has 4 devices: TX2, Xavier NX, laptop"):
        fleet_kind(config)
