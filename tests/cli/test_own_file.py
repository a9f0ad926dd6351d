"""`--own FILE`: a model, data, a metric and a strategy from a file, in every command that runs something."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heroes
from heroes.assemble import NOTHING, OwnParts, at_node, followed, with_file
from heroes.assemble.clients import from_file
from heroes.assemble.elsewhere import sent
from heroes.cli.commands import comparing
from heroes.cli.templates import own_parts
from heroes.errors import ConfigError, HeroesError
from heroes.settings.config import Config, to_toml
from heroes.tuning.workers import _made

PARTS = '''
from typing import Literal
import numpy as np
import torch
from torch import nn
import heroes
from heroes.strategies.base import SameTau

def build(width):
    return nn.Sequential(nn.Linear(4, 6 * width), nn.ReLU(), nn.Linear(6 * width, 3))

def examples(count, seed):
    labels = torch.arange(count) % 3
    noise = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return heroes.Examples(2.0 * torch.eye(4)[labels] + noise, labels)

def data():
    return examples(120, 0), examples(60, 1)

def worst(outputs, targets):
    return float(outputs.abs().max())

metrics = {"worst": heroes.metric(worst, lower_is_better=True)}

class Halves(SameTau):
    """Every other client trains a narrow model."""
    name: Literal["halves"] = "halves"
    narrow: int = 2

    def choose_widths(self, cohort):
        return np.where(np.arange(len(cohort)) % 2, self.narrow, self.family.max_width)
'''
STRATEGY = "\nstrategy = Halves(tau=2)\n"
SMALL = ["federation.clients=6", "federation.cohort=2", "model.max_width=2", "training.probes=0"]
SMALL += ["engine.name=in_process", "data.partition=iid"]
WORLD = [word for each in SMALL for word in ("--set", each)]
Write = Callable[[str], Path]


@pytest.fixture
def parts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Write]:
    """Writes a file of parts; afterwards Python knows nothing of it any more."""
    before, name = list(sys.path), f"parts_{abs(hash(request.node.name))}"

    def write(text: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    yield write
    sys.path[:] = before
    sys.modules.pop(name, None)


def said(*words: object) -> str:
    """What a command of ours says; errors are raised."""
    done = CliRunner().invoke(comparing.app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def settings(folder: Path) -> Config:
    return heroes.load(folder).config


def test_a_file_brings_a_model_data_a_metric_and_a_strategy_and_resume_finds_it(
    parts: Write, tmp_path: Path
) -> None:
    file, one, two = parts(PARTS + STRATEGY), tmp_path / "one", tmp_path / "two"
    said("run", "digits", "--own", file, *WORLD, "--rounds", 1, "--out", one, "--set", "strategy.narrow=1")
    config = settings(one)
    assert (config.model.name, config.data.name, config.strategy.name) == ("own", "own", "halves")
    assert config.own.file == str(file)
    assert config.strategy.model_dump()["narrow"] == 1
    said("resume", one, "--rounds", 2)
    said("run", "digits", "--own", file, *WORLD, "--rounds", 2, "--out", two, "--set", "strategy.narrow=1")
    assert (one / "records.jsonl").read_bytes() == (two / "records.jsonl").read_bytes()
    last = heroes.load(one).records[-1]
    assert last.metric == "worst"
    assert [client.width for client in last.clients] == [2, 1]
    assert heroes.load(one).model(1)[0].weight.shape == (6, 4)  # the file is found again
    exported = tmp_path / "model.safetensors"
    said("export", one, "-o", exported)
    assert exported.exists()


def test_resume_refuses_a_file_that_has_changed_or_is_gone_unless_it_is_named_again(
    parts: Write, tmp_path: Path
) -> None:
    file, run = parts(PARTS), tmp_path / "run"
    said("run", "digits", "--own", file, *WORLD, "--rounds", 1, "--out", run)
    parts(PARTS + "\n# another thought\n")
    with pytest.raises(ConfigError, match=r"has changed since the run began .* say --own .*parts_"):
        said("resume", run, "--rounds", 2)
    said("resume", run, "--rounds", 2, "--own", file)
    moved = file.rename(tmp_path / f"{file.stem}_moved.py")
    with pytest.raises(ConfigError, match=rf"there is no file '{file}' .* say --own FILE"):
        said("resume", run, "--rounds", 3)
    assert len(heroes.load(run).records) == 2  # what needs no file is there all the same
    with pytest.raises(ConfigError, match=r"model of your own, from .* which is gone or has changed"):
        heroes.load(run).model()
    with pytest.raises(ConfigError, match=r"put it back, or name the one to use, --own FILE"):
        said("export", run, "-o", tmp_path / "model.safetensors")
    said("export", run, "-o", tmp_path / "model.safetensors", "--own", moved)
    assert heroes.load(run, own=moved).model(1)[0].weight.shape == (6, 4)
    bare = moved.with_name(f"{moved.stem}_bare.py")
    bare.write_text(PARTS.partition("metrics = ")[0])
    with pytest.raises(ConfigError, match=rf"was run with your own metrics .*: '{bare}' lacks it"):
        said("resume", run, "--rounds", 3, "--own", bare)
    sys.modules.pop(bare.stem, None)
    said("resume", run, "--rounds", 3, "--own", moved)
    assert settings(run).own.file == str(moved)
    sys.modules.pop(moved.stem)


def test_compare_takes_the_strategy_by_its_name_and_sees_that_the_file_changed(
    parts: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "write_comparison", lambda *_: None)  # pictures take long
    file, out = parts(PARTS + STRATEGY), tmp_path / "both"
    words = ["compare", "digits", *WORLD, "--rounds", 1, "--strategies", "halves,fedavg", "--out", out]
    assert "halves" in said(*words, "--own", file, "--quiet")
    assert "2 of 2 runs are already done" in said(*words, "--own", file)
    assert settings(out / "fedavg-0").model.name == "own"
    parts(PARTS + STRATEGY + "\n")
    with pytest.raises(HeroesError, match=r"other settings \(own\.digest differs\)"):
        said(*words, "--own", file)
    with pytest.raises(ConfigError, match="--strategies is 'halves'"):
        said(*words)


def named(parts: Write, text: str = PARTS + STRATEGY) -> Config:
    """The configuration of a run with a file, as the command line makes it."""
    return comparing.options.configuration("digits", None, SMALL, {}, own=parts(text))


def test_a_worker_of_tune_reads_the_file(parts: Write, tmp_path: Path) -> None:
    config = named(parts).changed({"federation.rounds": 1})
    assert config.strategy.name == "halves"
    ended = _made(to_toml(config), tmp_path / "run", False, threading.Event())  # type: ignore[arg-type]
    assert ended.failed is None
    assert settings(tmp_path / "run").strategy.name == "halves"


def test_a_toml_file_may_name_the_file_and_settings_of_its_strategy(parts: Write, tmp_path: Path) -> None:
    toml = tmp_path / "mine.toml"
    own = f'[own]\nfile = "{parts(PARTS + STRATEGY)}"\n'
    toml.write_text(f'base = "digits"\nexperiment = "mine"\n{own}[strategy]\nname = "halves"\nnarrow = 1\n')
    config = comparing.options.configuration(str(toml), None, None, {})
    assert (config.strategy.name, config.strategy.model_dump()["narrow"]) == ("halves", 1)
    assert (config.model.name, config.objective.metrics[0]) == ("own", "worst")
    assert comparing.options.configuration(str(toml), "fedavg", None, {}).strategy.name == "fedavg"


def test_ranks_and_simulated_nodes_read_the_file_but_nodes_elsewhere_do_not(parts: Write) -> None:
    config = named(parts)
    followers, (trainer, data) = followed(NOTHING, sent(config)), from_file(sent(config), 0)
    assert len(followers.data.train) == len(data.train) == 120
    assert trainer.family.module(1)[0].weight.shape == (6, 4)
    assert followers.prepare is from_file
    with pytest.raises(ConfigError, match=r"strategy\.name is 'halves'"):
        at_node(NOTHING, sent(config), 0)


def test_spawned_workers_import_the_file(parts: Write, tmp_path: Path) -> None:
    config = named(parts, PARTS).changed(
        {"engine.name": "processes", "engine.start": "spawn", "engine.workers": 1, "federation.rounds": 1}
    )
    spawned = heroes.run(config)
    assert not spawned.records[-1].missing
    alone = heroes.run(config.changed({"engine.name": "in_process"}))
    assert spawned.records == alone.records


def test_data_by_client_as_a_flower_app_has_it_is_put_together(parts: Write) -> None:
    config = Config().changed({"federation.clients": 3, "federation.cohort": 3})
    file = str(parts(Path(own_parts.__file__).read_text()))
    own = with_file(NOTHING, config.changed({"own.file": file}).model_dump())
    data = own.data(config)  # type: ignore[operator, misc]
    assert [len(data.shares[client]) for client in range(3)] == [400, 400, 400]
    assert (data.train.inputs[data.shares[1]] == own_parts.data(1).inputs).all()
    assert (data.test.inputs == own_parts.data(None).inputs).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def build(width:\n", r"cannot be run: it fails in line 1 with SyntaxError"),
        ("x = 1\ny = x / 0\n", r"it fails in line 2 with ZeroDivisionError"),
        ("raise SystemExit(3)", r"it fails in line 1 with SystemExit: 3"),
        ("x = 1", r"has no parts of your own: it should have one or more of build, data, classes"),
        ("build = 3", r"build is a int; it should be a function"),
        ("data = [1]", r"data is a list; it should be a function"),
        ("classes = 0\nloss = print", r"classes is 0; it should be a whole number above 0"),
        ("def data(client): pass", r"data of your own needs a model of your own, or classes"),
        ("strategy = 'heroes'", r"strategy is a str; it should be an object of a class"),
        ("metrics = [max]", r"metrics is a list; give a mapping"),
        ("def data():\n    return [][0]", r"data\(\) of your own failed in line 2: IndexError"),
        ("def data():\n    return 7", r"data is a int; give \(train, test\)"),
        ("classes = 4\ndef data():\n    return 7", r"data is a int; give \(train, test\)"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(parts: Write, text: str, says: str) -> None:
    with pytest.raises(HeroesError, match=says):
        heroes.run(named(parts, text))


def test_clients_whose_data_does_not_go_together_are_refused() -> None:
    import torch

    def data(client: int | None) -> heroes.Examples:
        return heroes.Examples(torch.zeros(2, 4 if client else 3), torch.zeros(2))

    own = OwnParts(data=data, classes=2)
    with pytest.raises(HeroesError, match=r"data\(1\) gave inputs of shape \(4,\), data\(0\) of \(3,\)"):
        own.together(Config())


def test_a_file_that_cannot_be_imported_by_its_name_is_refused(tmp_path: Path) -> None:
    for name, says in (("json.py", "loaded already; rename"), ("a.b.py", "no name of a Python module")):
        (tmp_path / name).write_text("build = print")
        with pytest.raises(ConfigError, match=says):
            comparing.options.configuration("digits", None, None, {}, own=tmp_path / name)
    with pytest.raises(ConfigError, match="--own takes a Python file"):
        comparing.options.configuration("digits", None, None, {}, own=tmp_path)
