"""Parts that other packages bring: real distributions on the path, found by name, refused in sentences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import command_line
import pytest
from patience import patience

import heroes
from heroes import plugins
from heroes.errors import ConfigError, DataError
from heroes.runs.running import extended
from heroes.settings.config import Config
from heroes.strategies import registry

SMALL = {
    "federation.clients": 6,
    "federation.cohort": 3,
    "federation.rounds": 2,
    "model.max_width": 2,
    "data.test_limit": 60,
    "training.device": "cpu",
    "engine.name": "in_process",
}
SLOWEST = """
from typing import Literal

from heroes.strategies.base import SameTau


class Slowly(SameTau):
    \"\"\"One step at a time.\"\"\"

    name: Literal["slowly"] = "slowly"
    steps: int = 1
    \"\"\"how many\"\"\"

    def assign(self, state, cohort):
        return self.same_tau(state, cohort, self.load(cohort), self.steps)
"""
Package = Callable[..., Path]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Installs a package: a module, and the metadata that says what it offers."""

    def install(name: str, code: str, **offers: str) -> Path:
        site = tmp_path / f"site-{name}"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        module = name.replace("-", "_")
        (site / f"{module}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{module}.py,,\n")
        (info / "top_level.txt").write_text(f"{module}\n")
        groups = "".join(f"[heroes.{group}]\n{line.format(module)}\n" for group, line in offers.items())
        (info / "entry_points.txt").write_text(groups)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, module, raising=False)
        return site

    return install


def small(**changes: object) -> Config:
    return heroes.recipes.digits().changed(SMALL | changes)


def test_a_strategy_of_another_package_is_found_by_name_and_runs(package: Package, tmp_path: Path) -> None:
    package("heroes-slowly", SLOWEST, strategies="slowly = {}:Slowly")
    assert registry.names() == (*registry.BUILT_IN, "slowly")
    config = small(**{"strategy.name": "slowly", "strategy.steps": 2})
    run = heroes.run(config, out=tmp_path / "run")
    assert {client.tau for record in run.records for client in record.clients} == {2}
    parts = json.loads((tmp_path / "run" / "environment.json").read_text())["parts"]
    assert parts == {"strategy": {"name": "slowly", "module": "heroes_slowly", "package": "heroes-slowly"}}
    again = heroes.resume(tmp_path / "run", {"federation.rounds": 3})
    assert len(again.records) == 3


def test_a_run_whose_package_is_gone_says_which_and_can_still_be_shown(
    package: Package, tmp_path: Path
) -> None:
    site = package("heroes-slowly", SLOWEST, strategies="slowly = {}:Slowly")
    heroes.run(small(**{"strategy.name": "slowly"}), out=tmp_path / "run")
    for path in (site / "heroes-slowly-1.0.dist-info").iterdir():
        path.unlink()
    (site / "heroes-slowly-1.0.dist-info").rmdir()
    said = "used the strategy 'slowly', which the package 'heroes-slowly' brought: install it"
    with pytest.raises(ConfigError, match=said):
        extended(tmp_path / "run", {})
    for command in (["show"], ["report", "-o", str(tmp_path / "page.html")]):
        done = command_line.heroes(*command, str(tmp_path / "run"))
        assert (done.returncode, done.stderr) == (0, ""), command
    assert "slowly" in (tmp_path / "page.html").read_text()


def test_the_command_line_lists_and_takes_what_is_installed(package: Package, tmp_path: Path) -> None:
    site = package("heroes-slowly", SLOWEST, strategies="slowly = {}:Slowly")
    listed = command_line.heroes("list", "strategies")
    assert "from the package 'heroes-slowly'" in listed.stdout
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    command = ["run", "digits", "--strategy", "slowly", "--out", str(tmp_path / "run"), "--quiet", "--json"]
    done = subprocess.run(
        [*command_line.HEROES, *command, *settings],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(300),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 2


def test_a_name_that_is_taken_is_refused(package: Package) -> None:
    package("impostor", SLOWEST, strategies="fedavg = {}:Slowly")
    with pytest.raises(
        ConfigError, match="package 'impostor' brings a strategy called 'fedavg', but heroes has one"
    ):
        registry.find("fedavg")
    assert registry.find("heroes").model_fields["name"].default == "heroes"


def test_two_packages_of_one_name_are_refused(package: Package) -> None:
    package("one", SLOWEST, strategies="slowly = {}:Slowly")
    package("two", SLOWEST, strategies="slowly = {}:Slowly")
    with pytest.raises(ConfigError, match="the packages 'one' and 'two' both bring a strategy of that name"):
        Config().changed({"strategy.name": "slowly"})


@pytest.mark.parametrize(
    ("code", "offer", "said"),
    [
        (
            "raise OSError('no disk')",
            "slowly = {}:Slowly",
            "cannot be loaded from 'broken:Slowly': OSError: no disk",
        ),
        ("", "slowly = {}:Slowly", "cannot be loaded from 'broken:Slowly': AttributeError"),
        ("Slowly = 7", "slowly = {}:Slowly", "the strategy 'slowly' is 7; it should be a class made from"),
        (SLOWEST, "quickly = {}:Slowly", "the strategy 'quickly' calls itself 'slowly'"),
    ],
)
def test_what_is_no_strategy_is_refused_and_named(package: Package, code: str, offer: str, said: str) -> None:
    package("broken", code, strategies=offer)
    with pytest.raises(ConfigError, match=said):
        registry.find(offer.partition(" ")[0])


PARTS = """
import torch
from heroes.data import Dataset, Examples
from heroes.fleet import Device, FleetKind
from heroes.models.digits_cnn import build

crowd = FleetKind("all the same", (Device("crumb", 1e8),))


def noise(options):
    inputs = torch.arange(40.0).reshape(10, 1, 2, 2).repeat(4, 1, 4, 4)
    examples = Examples(inputs, torch.arange(40) % 4)
    return Dataset(examples, examples)


def nothing(options):
    return None


def broken(options):
    raise KeyError("lost")
"""


def test_models_data_sets_and_fleets_of_other_packages(package: Package) -> None:
    offers = {"models": "tiny = {}:build", "fleets": "crowd = {}:crowd"}
    package(
        "many-parts",
        PARTS,
        **offers,
        datasets="noise = {0}:noise\nnothing = {0}:nothing\nbroken = {0}:broken",
    )
    config = small(
        **{"model.name": "tiny", "fleet.name": "crowd", "data.name": "noise", "data.partition": "iid"}
    )
    run = heroes.run(config)
    assert {client.device for client in run.records[0].clients} == {"crumb"}
    with pytest.raises(DataError, match="data set 'nothing' from the module 'many_parts' is a NoneType"):
        heroes.run(config.changed({"data.name": "nothing"}))
    with pytest.raises(
        DataError, match="'broken' from the module 'many_parts' could not be loaded: KeyError: 'lost'"
    ):
        heroes.run(config.changed({"data.name": "broken"}))


def test_a_fleet_that_is_none_is_refused(package: Package) -> None:
    package("no-fleet", "crowd = 3", fleets="crowd = {}:crowd")
    with pytest.raises(ConfigError, match=r"the fleet 'crowd' is 3; it should be a heroes\.fleet\.FleetKind"):
        heroes.run(small(**{"fleet.name": "crowd"}))


def test_where_a_part_comes_from() -> None:
    assert plugins.origin(pytest.fixture) == {"module": "_pytest.fixtures", "package": "pytest"}
    assert plugins.origin(small) == {"module": __name__, "package": None}
