"""A strategy of one's own: FedRolex as the example has it, and what is refused of others."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from own_strategy import FedRolex
from safetensors.torch import load_file

import heroes
from heroes.client.extras import Extra
from heroes.errors import ConfigError, HeroesError, TrainingError
from heroes.messages import Selection, ServerState
from heroes.report import load_runs, write_page
from heroes.strategies.base import Duties, SameTau, Strategy
from heroes.strategies.fedavg import FedAvg

SMALL = {
    "federation.clients": 8,
    "federation.cohort": 4,
    "federation.rounds": 3,
    "model.max_width": 2,
    "data.test_limit": 100,
    "training.device": "cpu",
    "engine.name": "in_process",
}
ROOT = Path(__file__).parents[2]


def config(**changes: Any) -> heroes.Config:
    return heroes.recipes.digits().changed(SMALL | changes)


def same(one: Path, two: Path) -> bool:
    return all(
        (one / name).read_bytes() == (two / name).read_bytes()
        for name in ("records.jsonl", "model.safetensors")
    )


def test_the_example_stays_short_and_learns(tmp_path: Path) -> None:
    assert len((ROOT / "examples" / "own_strategy.py").read_text().splitlines()) < 60
    run = heroes.run(config(**{"federation.rounds": 12}), strategy=FedRolex(tau=10), out=tmp_path)
    assert run.config.strategy.name == "my_fedrolex"
    assert run.summary().accuracy > 0.7
    parts = json.loads((tmp_path / "environment.json").read_text())["parts"]
    assert parts["strategy"] == {"name": "my_fedrolex", "module": "own_strategy", "package": None}


def test_the_window_rolls_by_one_channel_of_the_narrowest_layer_and_wraps(world: Any) -> None:
    # hidden layers of 9 and 6 channels: units of 3 and 2, one by one
    strategy = FedRolex().on(world.ground())
    first = strategy.cut(Selection(2, pieces=(0,)))
    assert first["0.weight"].axes[0][1].tolist() == [0, 1, 2, 3, 4, 5]
    assert first["2.weight"].axes[0][1].tolist() == [0, 1, 2, 3]
    later = strategy.cut(Selection(2, pieces=(5,)))
    assert later["0.weight"].axes[0][1].tolist() == [6, 7, 8, 0, 1, 2] or later["0.weight"].axes[0][1][0] == 5
    assert later["2.weight"].axes[1][1].tolist() == later["0.weight"].axes[0][1].tolist()
    assert later["4.weight"].axes[0][1].tolist() == later["2.weight"].axes[0][1].tolist()


def test_all_local_engines_resume_and_faults_give_the_same_bits(tmp_path: Path) -> None:
    bad_day = {"faults.dropout": 0.2, "faults.garbage": 0.1, "server.at_least": 1, "exchange.up_bits": 8}
    strategy = FedRolex(tau=4)
    heroes.run(config(**bad_day), strategy=strategy, out=tmp_path / "whole")
    two = {"engine.name": "processes", "engine.workers": 2}
    heroes.run(config(**bad_day, **two), strategy=strategy, out=tmp_path / "processes")
    heroes.run(config(**bad_day, **{"federation.rounds": 1}), strategy=strategy, out=tmp_path / "resumed")
    heroes.resume(tmp_path / "resumed", {"federation.rounds": 3}, strategy=strategy)
    assert same(tmp_path / "whole", tmp_path / "processes")
    assert (
        load_file(tmp_path / "whole" / "model.safetensors").keys()
        == load_file(tmp_path / "resumed" / "model.safetensors").keys()
    )
    assert same(tmp_path / "whole", tmp_path / "resumed")
    page = write_page(load_runs([tmp_path / "whole"]), tmp_path / "page.html").read_text()
    assert "my_fedrolex" in page


def test_resume_without_the_strategy_says_where_it_came_from(tmp_path: Path) -> None:
    heroes.run(config(**{"federation.rounds": 1}), strategy=FedRolex(), out=tmp_path)
    with pytest.raises(
        ConfigError, match="used the strategy 'my_fedrolex', which came from the module 'own_strategy'"
    ):
        heroes.resume(tmp_path, {"federation.rounds": 2})
    heroes.run(config(**{"federation.rounds": 1}), out=tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match="was not run with your own strategy"):
        heroes.resume(tmp_path, {"federation.rounds": 2}, strategy=FedRolex())


class Impostor(FedAvg):
    """Calls itself by another's name."""


class Nameless(SameTau):
    """Has no name."""


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("fedavg", "strategy is a str; it should be an object of a class made from"),
        (FedRolex, "strategy is a ModelMetaclass; it should be an object"),
        (Impostor(), "your strategy calls itself 'fedavg', but there is another of that name"),
        (Nameless(), "the strategy 'nameless' calls itself ''; it should have the field"),
    ],
)
def test_what_is_no_strategy_of_ones_own_is_refused(strategy: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        heroes.run(config(), strategy=strategy)


def test_a_wrong_setting_of_an_own_strategy_is_refused_with_its_key() -> None:
    with pytest.raises(HeroesError, match=r"strategy\.tau is 0: it should be greater than or equal to 1"):
        heroes.run(config().with_strategy(FedRolex()).changed({"strategy.tau": 0}), strategy=FedRolex())


def odd(**methods: Any) -> Strategy:
    """FedAvg with some methods replaced."""
    fields = {
        "__annotations__": {"name": Literal["odd"]},
        "name": "odd",
        "__doc__": "Odd.",
        "__module__": __name__,
    }
    kind: type[Strategy] = type("Odd", (SameTau,), {**fields, **methods})
    return kind()


def fails(self: Strategy, *_: Any) -> Any:
    raise KeyError("lost")


def nine(self: Strategy, cohort: Any) -> Any:
    return np.full(len(cohort), 9)


def nothing(self: Strategy, *_: Any) -> Any:
    return None


def planned(**changes: Any) -> Any:
    """An assign() that gives everyone this."""

    def assign(self: Strategy, state: ServerState[Any], cohort: Any) -> Any:
        plan = SameTau.assign(self, state, cohort)  # type: ignore[arg-type]
        return replace(plan, assignments=tuple(replace(a, **changes) for a in plan.assignments))

    return assign


def not_finite(self: Strategy, state: ServerState[Any], plan: Any, answers: Any) -> Any:
    list(answers)
    broken = {name: torch.full_like(tensor, math.nan) for name, tensor in state.tensors.items()}
    return ServerState(state.round + 1, broken, None), {}


@pytest.mark.parametrize(
    ("method", "does", "said"),
    [
        (
            "assign",
            fails,
            r"'odd' failed in assign\(\) of round 1: KeyError: 'lost' \(test_own_strategy.py, line \d+\)",
        ),
        ("choose_widths", nine, r"choose_widths\(\) of the strategy gave .*9.*whole numbers from 1 to 2"),
        ("choose_widths", nothing, r"choose_widths\(\) of the strategy gave None; it should give an array"),
        (
            "assign",
            nothing,
            r"assign\(\) of the strategy 'odd' gave a NoneType in round 1; it should give a Plan",
        ),
        (
            "assign",
            planned(batch=0.0),
            r"assign\(\) of the strategy 'odd' gave client \d+ batch 0\.0 in round 1; it should be above 0",
        ),
        ("assign", planned(until=-1.0), r"client \d+ until -1\.0 and last 1\.0 in round 1; until should be"),
        ("assign", planned(last=1.5), r"client \d+ until None and last 1\.5 in round 1; .* at most 1"),
        ("aggregate", fails, r"the strategy 'odd' failed in aggregate\(\) of round 1: KeyError: 'lost'"),
        (
            "aggregate",
            nothing,
            r"aggregate\(\) of the strategy 'odd' gave a NoneType in round 1; it should give",
        ),
        (
            "aggregate",
            not_finite,
            r"aggregate\(\) of the strategy 'odd' made '0\.weight' not finite in round 1",
        ),
        ("cut", fails, r"the strategy 'odd' failed in cut\(\) .*KeyError: 'lost'"),
        ("begin", nothing, r"begin\(\) of the strategy 'odd' gave a NoneType; it should give a ServerState"),
    ],
)
def test_a_strategy_that_fails_or_gives_the_wrong_thing_is_named(method: str, does: Any, said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        heroes.run(config(**{"federation.rounds": 1}), strategy=odd(**{method: does}))


def picky(seen: Any) -> Any:
    if 3 in seen.targets.tolist():
        raise KeyError("no threes")
    return torch.ones(1)


def test_what_fails_at_a_client_costs_that_client_only() -> None:
    def duties(self: Strategy, probes: int) -> Duties:
        return Duties(sends=(Extra("mood", picky, lambda tensor, parameters, classes: None),))

    one_class_each = {"data.gamma": 100.0, "federation.clients": 10, "federation.cohort": 10}
    run = heroes.run(config(**one_class_each, **{"federation.rounds": 1}), strategy=odd(duties=duties))
    (record,) = run.records
    assert [(lost.cause, lost.reason) for lost in record.missing] == [("failed", "KeyError: 'no threes'")]
    assert len([client for client in record.clients if client.samples is not None]) == 9


def test_an_extra_that_nobody_asked_for_or_is_wrong_is_refused_and_counted() -> None:
    def duties(self: Strategy, probes: int) -> Duties:
        return Duties(sends=(Extra("mood", lambda seen: torch.ones(1), lambda *_: "its mood is wrong"),))

    with pytest.raises(TrainingError, match="its mood is wrong"):
        heroes.run(config(**{"federation.rounds": 1, "server.attempts": 1}), strategy=odd(duties=duties))
