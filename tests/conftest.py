"""A tiny federation that the tests share: three clouds of points, a three-layer network, hand-made costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import nn

from heroes import seeds
from heroes.contracts import Clock, Engine
from heroes.data import Examples, FederatedData, share_out
from heroes.engines.in_process import InProcessEngine
from heroes.evaluation import Score, evaluate
from heroes.fleet.clock import VirtualClock
from heroes.fleet.costs import Costs
from heroes.fleet.devices import FLEETS, Fleet
from heroes.local_training import LocalSettings, Trainer
from heroes.messages import Assignment, Selection, ServerState
from heroes.models.family import Family
from heroes.pacing import Limits
from heroes.rounds import Federation
from heroes.schedule import LearningRate
from heroes.strategies.heroes import Heroes
from heroes.submodels import cut_out

settings.register_profile("heroes", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("heroes")
torch.set_num_threads(1)


def build_network(width: int) -> nn.Module:
    """Grouped, composed and grouped weights; the last bias is shared."""
    return nn.Sequential(nn.Linear(4, 3 * width), nn.Tanh(), nn.Linear(3 * width, 2 * width), nn.Tanh(), nn.Linear(2 * width, 3))


def clouds(count: int, seed: int) -> Examples:
    """Points in four dimensions around three centres."""
    rng = seeds.stream(seed, "clouds")
    labels = np.arange(count) % 3
    centres = np.array([[2.0, 0, 0, 1], [0, 2, 0, -1], [0, 0, 2, 0]])
    points = centres[labels] + rng.normal(0, 0.7, (count, 4))
    return Examples(torch.from_numpy(points.astype(np.float32)), torch.from_numpy(labels))


@dataclass(frozen=True)
class World:
    """Makes the pieces of a federation; every default can be replaced."""

    def family(self, max_width: int = 3, rank_ratio: float = 1.0, build: Callable[[int], nn.Module] = build_network) -> Family:
        return Family(build, max_width, rank_ratio)

    def examples(self, count: int = 120, seed: int = 0) -> Examples:
        return clouds(count, seed)

    def data(self, clients: int = 12) -> FederatedData:
        train = clouds(120, 0)
        shares = share_out("gamma", train.targets.numpy(), clients, seeds.stream(0, "partition"), 50.0)
        return FederatedData(train, clouds(60, 1), shares)

    def costs(self, max_width: int = 3) -> Costs:
        flops = 1e6 * np.array([1.0, 3.0, 6.0])[:max_width]
        sizes = np.array([2000, 4000, 7000])[:max_width]
        return Costs(step_flops=flops, probe_flops=flops / 2, bytes_up=sizes, bytes_down=sizes + 100)

    def heroes(self, max_width: int = 3, **changes: Any) -> Heroes:
        wanted: dict[str, Any] = {
            "family": self.family(max_width),
            "costs": self.costs(max_width),
            "learning_rate": LearningRate(0.1),
            "rounds": 20,
            "step_limit": 0.02,
            "limits": Limits(tau_first=6, tau_min=1, tau_max=40),
        }
        return Heroes(**(wanted | changes))

    def federation(
        self,
        strategy: Heroes | None = None,
        engine: Engine | None = None,
        clock: Clock | None = None,
        *,
        clients: int = 12,
        cohort: int = 4,
        seed: int = 1,
        **settings_changes: Any,
    ) -> Federation:
        chosen = strategy or self.heroes()
        data = self.data(clients)
        local = LocalSettings(**({"batch_size": 5} | settings_changes))

        def score(state: ServerState[Any], width: int) -> Score:
            model = chosen.family.dense(width)
            model.load(chosen.family.plain_weights(cut_out(state.tensors, chosen.cut(chosen.serve(width)))))
            return evaluate(model, data.test, 60, torch.device("cpu"))

        return Federation(
            strategy=chosen,
            engine=engine or InProcessEngine(Trainer(chosen.family, local), data),
            clock=clock or VirtualClock(),
            fleet=Fleet(FLEETS["boards"], clients, seed),
            cohort=cohort,
            seed=seed,
            score=score,
            family=chosen.family,
        )

    def assignment(self, client: int = 0, **changes: Any) -> Assignment:
        wanted: dict[str, Any] = {
            "round": 1,
            "client": client,
            "device": "board-1",
            "selection": Selection(1, (0,), (0,)),
            "tau": 3,
            "learning_rate": 0.1,
            "step_seconds": 2.0,
            "probe_seconds": 1.0,
            "transfer_seconds": 4.0,
            "bytes_down": 30,
            "bytes_up": 20,
        }
        return Assignment(**(wanted | changes))


@pytest.fixture(scope="session")
def world() -> World:
    return World()
