"""What a step costs clients, and the widths that follow on the paper's devices."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import pytest
import torch

from heroes import recipes
from heroes.assemble.clients import local_settings, measure_costs, objective
from heroes.assemble.own import NOTHING
from heroes.assemble.server import ground
from heroes.data import Examples
from heroes.fleet import FLEETS, Fleet
from heroes.models import cnn
from heroes.models.family import Family
from heroes.planning.loads import Costs
from heroes.strategies.registry import BUILT_IN

WITH_WIDTHS = [name for name, kind in BUILT_IN.items() if "step_limit" in kind.model_fields]
PRICES = ("flops", "priced")
PAPER = Fleet(FLEETS["paper"], 100, 0)


@lru_cache
def family() -> Family:
    return Family(partial(cnn.build, max_width=4), 4)


@lru_cache
def costs(name: str) -> Costs:
    config = recipes.cifar10(strategy=name)
    images = Examples(torch.zeros(32, 3, 32, 32), torch.arange(32) % 10)
    return measure_costs(family(), images, local_settings(config, objective(config, NOTHING)), 32)


def widths(name: str, limit: str) -> list[set[int]]:
    """Of the four device classes, slowest first, over some rounds."""
    config = recipes.cifar10(strategy=name).changed({"strategy.step_limit": limit})
    strategy = config.strategy.on(ground(config, family(), costs(name)))
    days = [strategy.choose_widths(PAPER.status(np.arange(100), day)) for day in range(1, 21)]
    return [{int(w) for day in days for w in day[PAPER.device_of == kind]} for kind in range(4)]


@pytest.mark.parametrize("name", WITH_WIDTHS)
def test_with_a_limit_of_its_own_every_strategy_gives_the_four_classes_widths_one_to_four(name: str) -> None:
    assert widths(name, "own") == [{1}, {2}, {3}, {4}]


def test_with_a_shared_limit_all_of_the_fastest_devices_have_the_dense_model_in_every_round() -> None:
    assert widths("heterofl", "shared") == [{1}, {2}, {3}, {4}]


@pytest.mark.parametrize("name", [name for name in WITH_WIDTHS if BUILT_IN[name].holds == "factors"])
def test_with_a_shared_limit_three_quarters_have_the_whole_composed_model(name: str) -> None:
    assert widths(name, "shared") == [{2}, {4}, {4}, {4}]


@pytest.mark.parametrize("name", BUILT_IN)
def test_priced_steps_leave_the_dense_model_as_it_is_and_make_composed_ones_dearer(world, name: str) -> None:
    plain, priced = (world.assembled(name, {"fleet.cost": cost}).strategy.ground.costs for cost in PRICES)
    assert priced.probe_flops[-1] == pytest.approx(plain.probe_flops[-1], rel=1e-12)
    assert (priced.bytes_up.tolist(), priced.bytes_down.tolist()) == (
        plain.bytes_up.tolist(),
        plain.bytes_down.tolist(),
    )
    if BUILT_IN[name].holds == "factors":
        assert (priced.step_flops > plain.step_flops).all()
    elif BUILT_IN[name]().duties(0).any_width == 0:
        assert priced.step_flops.tolist() == priced.probe_flops.tolist()
