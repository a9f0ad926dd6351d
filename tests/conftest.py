"""A tiny federation that the tests share: three clouds of points, a three-layer network, hand-made costs."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from patience import patience
from torch import nn

from heroes import seeds
from heroes.assemble import Own, assembled
from heroes.assemble.server import server_optimiser
from heroes.client.training import LocalSettings, Trainer
from heroes.contracts import Clock, Engine
from heroes.data import Examples, FederatedData, share_out
from heroes.federation import Federation
from heroes.fleet.clock import VirtualClock
from heroes.fleet.devices import FLEETS, Fleet
from heroes.messages import Assignment, Cohort, Plan, RoundRecord, Selection, ServerState, Update
from heroes.models.family import Family
from heroes.planning.loads import Costs, LearningRate
from heroes.rounds import run_round
from heroes.server.sampling import Uniform
from heroes.settings.config import Config
from heroes.slices.cuts import cut_out
from heroes.slices.feedback import Feedback
from heroes.slices.overlays import overlay_mean
from heroes.strategies import registry
from heroes.strategies.base import Ground, Strategy
from heroes.transport.engines import in_process
from heroes.transport.engines.in_process import InProcessEngine

settings.register_profile("heroes", deadline=None, derandomize=True, database=None, max_examples=25)
settings.load_profile("heroes")
torch.set_num_threads(1)
# a shell that starts the tests in the background has interrupts ignored, also by what the tests start
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Limits of tests are as long as this machine needs them. Whoever may take longest begins first, so that
    nobody is left to run alone at the end.
    """
    limits = {}
    for item in items:
        own = item.get_closest_marker("timeout")
        limits[item.nodeid] = float(own.args[0] if own and own.args else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(patience(limits[item.nodeid])), append=False)
    items.sort(key=lambda item: -limits[item.nodeid])


PUBLISHED = {
    "blocks": "grid",
    "pace": "calibrated",
    "rho": "auto",
    "any_width": 0.0,
    "useful": 0.0,
    "patience": 1.0,
}
USUAL = {"tau": 6, "step_limit": 0.02, **PUBLISHED}  # where a strategy has them; Heroes near to its paper
USUAL_RANGE = {"tau_first": 6, "tau_min": 1, "tau_max": 40}  # where it has all three


def build_network(width: int) -> nn.Module:
    """Grouped, composed and grouped weights; the last bias is shared."""
    return nn.Sequential(
        nn.Linear(4, 3 * width),
        nn.Tanh(),
        nn.Linear(3 * width, 2 * width),
        nn.Tanh(),
        nn.Linear(2 * width, 3),
    )


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

    def family(
        self, max_width: int = 3, rank_ratio: float = 1.0, build: Callable[[int], nn.Module] = build_network
    ) -> Family:
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

        def upload(width: int, bits: int, share: float) -> int:
            return math.ceil(int(sizes[width - 1]) * bits * share / 32)

        return Costs(flops, flops / 2, bytes_up=sizes, bytes_down=sizes + 100, upload=upload)

    def strategy(self, strategy_name: str, max_width: int = 3, **changes: Any) -> Strategy:
        """A strategy by name on the tiny family; changes are its settings or parts of its ground."""
        kind = registry.find(strategy_name)
        usual = {key: value for key, value in USUAL.items() if key in kind.model_fields}
        usual |= USUAL_RANGE if USUAL_RANGE.keys() <= kind.model_fields.keys() else {}
        settings = usual | {key: value for key, value in changes.items() if key in kind.model_fields}
        given = {key: value for key, value in changes.items() if key not in kind.model_fields}
        return kind(**settings).on(self.ground(max_width, **given))

    def ground(self, max_width: int = 3, **changes: Any) -> Ground:
        wanted: dict[str, Any] = {
            "family": self.family(max_width),
            "costs": self.costs(max_width),
            "learning_rate": LearningRate(0.1),
            "overlay": overlay_mean,
            "rounds": 20,
            "probes": 2,
        }
        return Ground(**(wanted | changes))

    def assembled(self, name: str, changes: dict[str, Any] | None = None) -> Federation:
        """The tiny federation as `assembled` makes it from a configuration: real costs, real settings."""
        wanted: dict[str, Any] = {
            "strategy.name": name,
            "seed": 1,
            "federation.clients": 12,
            "federation.cohort": 4,
            "model.max_width": 3,
            "training.batch_size": 5,
            "training.learning_rate": 0.1,
            "training.device": "cpu",
            "engine.name": "in_process",
        }
        config = Config().changed(wanted | (changes or {}))
        with assembled(config, in_process.opened, Own(build_network, self.data())) as federation:
            return federation

    def cohort(self, speeds: list[float], upload: float = 200e3, download: float = 1e6) -> Cohort:
        """Clients 10, 11, ... of these speeds on equal links."""
        count = len(speeds)
        clients, devices = np.arange(10, 10 + count), ("board",) * count
        links = np.full(count, upload), np.full(count, download)
        speed = np.array(speeds)
        return Cohort(clients, devices, speed, *links, np.zeros(count), fastest=max(speeds), usual=speed)

    def answers(
        self, plan: Plan, strategy: Strategy, state: ServerState[Any], values: list[float] | None = None
    ) -> Iterator[tuple[Assignment, Update]]:
        """Every client sends back what it got, or everywhere its own value."""
        for n, a in enumerate(plan.assignments):
            tensors = cut_out(state.tensors, strategy.cut(a.selection))
            if values is not None:
                tensors = {name: torch.full_like(tensor, values[n]) for name, tensor in tensors.items()}
            yield a, Update(a.client, a.round, tensors, 10, 0.5)

    def three_rounds(self, strategy: Strategy) -> tuple[ServerState[Any], list[RoundRecord]]:
        """The state and the records after three rounds of the tiny federation."""
        federation = self.federation(strategy)
        state = strategy.begin(seeds.number(federation.seed, "model"))
        entries = []
        for _ in range(3):
            state, entry = run_round(federation, state)
            entries.append(entry)
        return state, entries

    def federation(
        self,
        strategy: Strategy | None = None,
        engine: Engine | None = None,
        clock: Clock | None = None,
        *,
        clients: int = 12,
        cohort: int = 4,
        seed: int = 1,
        down_bits: int = 32,
        error_feedback: bool | None = None,
        **settings_changes: Any,
    ) -> Federation:
        chosen = strategy or self.strategy("heroes")
        data = self.data(clients)
        duties = chosen.duties(chosen.ground.probes)
        asked = {field.name: getattr(duties, field.name) for field in fields(duties)}
        if error_feedback is None:
            error_feedback = bool(chosen.requires.get("exchange.error_feedback", False))
        asked["utility"] = chosen.sampler() is not None
        train_in = "factors" if chosen.holds == "factors" else "dense"
        local = LocalSettings(**({"batch_size": 5, "train_in": train_in} | asked | settings_changes))
        shapes = {name: tuple(tensor.shape) for name, tensor in chosen.begin(0).tensors.items()}

        return Federation(
            strategy=chosen,
            engine=engine or InProcessEngine(Trainer(chosen.family, local), data),
            clock=clock or VirtualClock(),
            fleet=Fleet(FLEETS["boards"], clients, seed),
            cohort=cohort,
            seed=seed,
            family=chosen.family,
            sends=local.sends,
            down_bits=down_bits,
            feedback=Feedback(shapes) if error_feedback else None,
            optimiser=server_optimiser(Config().with_strategy(chosen)),
            sampler=chosen.sampler() or Uniform(),
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
