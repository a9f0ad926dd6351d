"""Names to objects: the only file that knows every room. The configuration stops here; below it there are plain values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from heroes import seeds
from heroes.config import Config
from heroes.data import DATASETS, PARTITIONS, Examples, FederatedData, share_out
from heroes.engines.in_process import InProcessEngine, one_thread
from heroes.errors import ConfigError, DataError, did_you_mean
from heroes.evaluation import Score, evaluate
from heroes.fleet import FLEETS, Costs, Fleet, FleetKind, VirtualClock, step_flops
from heroes.fleet.costs import tensor_bytes
from heroes.local_training import LocalSettings, Trainer
from heroes.messages import ServerState
from heroes.models import MODELS
from heroes.models.family import Build, Family
from heroes.pacing import Limits
from heroes.rounds import Federation, Stop
from heroes.schedule import LearningRate
from heroes.strategies.heroes import Heroes
from heroes.submodels import cut_out

T = TypeVar("T")


def assemble(config: Config, model: Build | None = None, data: FederatedData | None = None) -> Federation:
    """Everything that takes part in the run that the configuration describes, with the user's own model or data in its place."""
    chosen = data or federated(config, *named("data.name", config.data.name, DATASETS)())
    if len(chosen.shares) != config.federation.clients:
        raise ConfigError(
            f"federation.clients is {config.federation.clients} but the data is shared over {len(chosen.shares)} clients"
        )
    family = Family(model or model_build(config), config.model.max_width, config.model.rank_ratio)
    fleet = Fleet(fleet_kind(config), config.federation.clients, config.seed)
    trainer = Trainer(family, local_settings(config), torch_device(config.training.device))
    costs, dense_flops = measure_costs(family, chosen.train, config.training)
    strategy = heroes(config, family, costs, dense_flops / fleet.fastest)

    def score(state: ServerState[Any], width: int) -> Score:
        resident = trainer.model("composed", width)
        resident.load(cut_out(state.tensors, strategy.cut(strategy.serve(width))))
        with one_thread():
            return evaluate(resident, chosen.test, config.evaluation.batch_size, trainer.device)

    return Federation(
        strategy=strategy,
        engine=InProcessEngine(trainer, chosen),
        clock=VirtualClock(),
        fleet=fleet,
        cohort=config.federation.cohort,
        seed=config.seed,
        score=score,
        family=family,
    )


def named(key: str, name: str, choices: Mapping[str, T]) -> T:
    """The choice of this name, or an error that says which key is wrong."""
    if name not in choices:
        raise ConfigError(f"{key} is {name!r}: {did_you_mean(name, choices)}")
    return choices[name]


def federated(config: Config, train: Examples, test: Examples) -> FederatedData:
    """Share the training examples out as the configuration says."""
    named("data.partition", config.data.partition, PARTITIONS)
    level = {"gamma": config.data.gamma, "dirichlet": config.data.alpha}.get(config.data.partition, 0.0)
    rng = seeds.stream(config.seed, "partition")
    shares = share_out(config.data.partition, train.targets.numpy(), config.federation.clients, rng, level)
    return FederatedData(train, test, shares)


def model_build(config: Config) -> Build:
    """The named model with the options of the configuration that it takes."""
    build = named("model.name", config.model.name, MODELS)
    takes = inspect.signature(build).parameters
    options = {key: value for key, value in config.model.model_dump().items() if key in takes and key != "name"}
    return partial(build, **options)


def fleet_kind(config: Config) -> FleetKind:
    """The named fleet, with what the configuration puts in its place."""
    kind = named("fleet.name", config.fleet.name, FLEETS)
    own = config.fleet.model_dump(include={"upload", "download", "jitter"}, exclude_none=True)
    return replace(kind, **own)


def local_settings(config: Config) -> LocalSettings:
    t = config.training
    return LocalSettings(t.batch_size, t.momentum, t.weight_decay, t.clip, t.regulariser, t.train_in, probes(config))


def probes(config: Config) -> int:
    """Estimates are made only where the scheme uses them."""
    return config.training.probes if config.strategy.adaptive_tau else 0


def measure_costs(family: Family, train: Examples, training: Any) -> tuple[Costs, int]:
    """What each width costs, and the FLOPs of a step of the dense full-width model."""
    batch = np.arange(training.batch_size) % len(train)
    inputs, targets = train.batch(batch, torch.device("cpu"))
    widths = range(1, family.max_width + 1)
    try:
        dense = [step_flops(family.dense(width).module, inputs, targets) for width in widths]
        step = dense
        if training.train_in == "factors":
            step = [step_flops(family.composed(width).module, inputs, targets) for width in widths]
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        shape = tuple(inputs.shape[1:])
        raise DataError(f"the model does not take the data (inputs of shape {shape}, {inputs.dtype}): {error}") from error
    sizes = np.array([tensor_bytes(family.tensor_shapes(width).values()) for width in widths])
    return Costs(np.array(step, dtype=float), np.array(dense, dtype=float), sizes, sizes), dense[-1]


def heroes(config: Config, family: Family, costs: Costs, auto_limit: float) -> Heroes:
    """The scheme from its section of the configuration."""
    s, t, f = config.strategy, config.training, config.federation
    return Heroes(
        family=family,
        costs=costs,
        learning_rate=LearningRate(t.learning_rate, t.learning_rate_decay, t.learning_rate_floor),
        rounds=f.rounds,
        step_limit=auto_limit if s.step_limit == "auto" else s.step_limit,
        limits=Limits(s.tau_first, s.tau_min, s.tau_max),
        blocks=s.blocks,
        adaptive_tau=s.adaptive_tau,
        pace=s.pace,
        deadline=s.deadline,
        rho=None if s.rho == "auto" else s.rho,
        threshold=s.threshold,
        time_budget=f.time_budget,
        probes=probes(config),
        count_download=config.fleet.count_download,
    )


def stop_rule(config: Config) -> Stop:
    f = config.federation
    traffic = None if f.traffic_budget is None else int(f.traffic_budget * 1e6)
    return Stop(f.rounds, f.time_budget, traffic, f.target_accuracy, f.target_loss)


def torch_device(name: str) -> torch.device:
    """The device of this name; `auto` is the fastest there is."""
    there: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if name == "auto":
        return torch.device(next(kind for kind, is_there in there.items() if is_there()))
    if not there[name]():
        raise ConfigError(f"training.device is {name!r} but this machine has none; use auto or cpu")
    return torch.device(name)
