"""Names to objects: the only file that knows every room. The configuration stops here; below it there are
plain values.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from heroes import seeds
from heroes.client.extras import GRADIENT, LABELS
from heroes.client.losses import Function
from heroes.client.objectives import Objective, make_objective
from heroes.client.optimisers import AdamW, Sgd
from heroes.client.terms import Orthogonality, Proximal, Term
from heroes.client.training import LocalSettings, Trainer, one_thread
from heroes.contracts import Elsewhere, Engine, Optimiser, Strategy
from heroes.data import (
    DATASETS,
    PARTITIONS,
    DataOptions,
    Dataset,
    Examples,
    FederatedData,
    Progress,
    load,
    share_out,
)
from heroes.errors import ConfigError, DataError, TrainingError, did_you_mean
from heroes.federation import Federation, Policy, Stop
from heroes.fleet import (
    FLEETS,
    Costs,
    Faults,
    Fleet,
    FleetKind,
    MeasuredFleet,
    VirtualClock,
    WallClock,
    read_fleet,
    step_flops,
)
from heroes.messages import Assignment
from heroes.models import MODELS
from heroes.models.family import Build, Family
from heroes.planning.pacing import Limits
from heroes.planning.schedule import LearningRate
from heroes.server.defence import Defence, overlay
from heroes.server.privacy import Privacy
from heroes.settings.config import Config, to_toml
from heroes.settings.sections import (
    AdpConfig,
    FaultsConfig,
    FedAvgConfig,
    FlancConfig,
    HeroesConfig,
    HeteroFLConfig,
)
from heroes.slices.exchange import Feedback, tensors_bytes
from heroes.strategies.adp import Adp
from heroes.strategies.fedavg import FedAvg
from heroes.strategies.flanc import Flanc
from heroes.strategies.heroes import Heroes
from heroes.strategies.heterofl import HeteroFL
from heroes.transport.engines.faulty import FaultyEngine
from heroes.transport.engines.in_process import InProcessEngine
from heroes.transport.engines.mpi import MpiEngine
from heroes.transport.engines.processes import ProcessEngine

T = TypeVar("T")
COMPOSED = ("heroes", "flanc")  # the schemes whose tensors are factors


def assemble(
    config: Config,
    model: Build | None = None,
    data: FederatedData | None = None,
    progress: Progress | None = None,
    loss: Function | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Federation:
    """Everything that takes part in the run that the configuration describes, with the user's own parts in
    their places.
    """
    drawn = Fleet(fleet_kind(config), config.federation.clients, config.seed)
    trainer, chosen = at_clients(config, model, data, progress, loss, metrics)
    family = trainer.family
    with one_thread():  # counting gains nothing from more, and on a busy machine they wait for each other
        costs = measure_costs(config, family, chosen.train, trainer.settings.objective)
    strategy = scheme(config, family, costs)
    troubled = config.faults != FaultsConfig()
    faults = (
        Faults(config.seed, config.federation.clients, **config.faults.model_dump()) if troubled else None
    )
    server = config.server
    wall = WallClock(server.deadline, server.deadline_factor) if config.engine.clock == "wall" else None
    fleet = drawn if wall is None else MeasuredFleet(drawn)
    engine = carrier(config, trainer, chosen, costs, progress, wall, fleet)
    return Federation(
        strategy=strategy,
        engine=engine if faults is None else FaultyEngine(engine, faults),
        clock=wall or VirtualClock(faults, server.deadline, server.deadline_factor),
        fleet=fleet,
        cohort=config.federation.cohort,
        seed=config.seed,
        family=family,
        sends=trainer.settings.sends,
        down_bits=config.exchange.down_bits,
        feedback=feedback(strategy) if config.exchange.error_feedback else None,
        faults=faults,
        policy=Policy(server.at_least, server.attempts, server.oversample),
        defence=Defence(config.robust.clip, config.robust.guard, config.robust.guard_factor),
        privacy=privacy(config),
        present=engine.present if isinstance(engine, Elsewhere) else lambda: None,
    )


def at_clients(
    config: Config,
    model: Build | None = None,
    data: FederatedData | None = None,
    progress: Progress | None = None,
    loss: Function | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> tuple[Trainer, FederatedData]:
    """What is needed where clients train: who trains, and all data, shared out."""
    device = torch_device(config.training.device)
    settings = replace(local_settings(config), objective=objective(config, loss, metrics))
    if model is None:
        named("model.name", config.model.name, MODELS)
    chosen = data or federated(config, dataset(config, progress))
    if len(chosen.shares) != config.federation.clients:
        raise ConfigError(
            f"federation.clients is {config.federation.clients} but the data is shared over {len(chosen.shares)} clients"
        )
    check_targets(settings, chosen)
    family = Family(model or model_build(config, chosen), config.model.max_width, config.model.rank_ratio)
    return Trainer(family, settings, device), chosen


def objective(config: Config, loss: Function | None, metrics: Mapping[str, Any] | None) -> Objective:
    """What is minimised and what is measured; parts may be the user's own."""
    o, wanted = config.objective, config.federation.target_accuracy
    if wanted is not None and "accuracy" not in o.measured:
        raise ConfigError(
            f"federation.target_accuracy is {wanted:g} but accuracy is not measured: objective.metrics has "
            f"{', '.join(o.measured)}; federation.target is for {o.measured[0]}"
        )
    return make_objective(o.name, o.measured, o.label_smoothing, loss, metrics)


def check_targets(settings: LocalSettings, data: FederatedData) -> None:
    """Whether the targets are what the objective and the strategy learn from."""
    for examples in (data.train, data.test):
        settings.objective.loss.check(examples.targets)
        if not examples.are_classes and (settings.mask_absent_labels or LABELS in settings.sends):
            keys = "strategy.mask_absent_labels and strategy.label_split"
            kind = f"{examples.targets.dtype} of shape {tuple(examples.targets.shape)}"
            raise ConfigError(f"{keys} need class labels, but targets are {kind}; use false for both")


def privacy(config: Config) -> Privacy | None:
    """What hides each client's part, if it is to be hidden."""
    p, f = config.privacy, config.federation
    if p.noise == 0:
        return None
    drawn = math.ceil(f.cohort * config.server.oversample)
    seed = config.seed if p.source == "seed" else None
    return Privacy(
        p.clip, p.noise, p.delta, f.clients, drawn, seed, sampled=config.faults.availability == "always"
    )


def named(key: str, name: str, choices: Mapping[str, T]) -> T:
    """The choice of this name, or an error that says which key is wrong."""
    if name not in choices:
        raise ConfigError(f"{key} is {name!r}: {did_you_mean(name, choices)}")
    return choices[name]


def dataset(config: Config, progress: Progress | None = None) -> Dataset:
    """The named data set, with the options that the configuration has for it."""
    named("data.name", config.data.name, DATASETS)
    named("data.partition", config.data.partition, PARTITIONS)
    takes = {field.name for field in fields(DataOptions)}
    options = {key: value for key, value in config.data.model_dump().items() if key in takes}
    options |= {
        key: Path(options[key]) for key in ("directory", "source", "writers") if options[key] is not None
    }
    found = load(config.data.name, DataOptions(**{"seed": config.seed, "progress": progress, **options}))
    if found.skipped and progress is not None:
        progress(f"{len(found.skipped)} files left out, for example {found.skipped[0]}", 0, None)
    return found


def federated(config: Config, data: Dataset) -> FederatedData:
    """Share the training examples out as the configuration says."""
    name, clients = config.data.partition, config.federation.clients
    named("data.partition", name, PARTITIONS)
    d = config.data
    level = {"gamma": d.gamma, "by_device": d.gamma, "dirichlet": d.alpha, "missing": d.phi}.get(name)
    shares = share_out(
        name,
        data.train.targets.numpy(),
        clients,
        seeds.stream(config.seed, "partition"),
        level,
        owners=data.owners,
        device_of=Fleet(fleet_kind(config), clients, config.seed).device_of if name == "by_device" else None,
        examples_per_client=d.examples_per_client,
    )
    return FederatedData(data.train, data.test, shares, len(data.class_names) or None)


def model_build(config: Config, data: FederatedData) -> Build:
    """The named model with the options that it takes, for as many classes, channels and pixels as the data
    has. Targets that are floats are no classes: then the model has as many outputs as it is told.
    """
    build = named("model.name", config.model.name, MODELS)
    takes = inspect.signature(build).parameters
    shape = data.train.inputs.shape
    found = {"image": shape[-1], "channels": shape[1] if len(shape) == 4 else 3}
    if not data.train.targets.dtype.is_floating_point:
        shown = int(max(data.train.targets.max(), data.test.targets.max())) + 1
        found["classes"] = data.classes or shown
    options = {
        key: value
        for key, value in (found | config.model.model_dump()).items()
        if key in takes and key != "name"
    }
    return partial(build, **options)


def fleet_kind(config: Config) -> FleetKind:
    """The named fleet, with what the configuration puts in its place."""
    kind = (
        named("fleet.name", config.fleet.name, FLEETS)
        if config.fleet.csv is None
        else read_fleet(Path(config.fleet.csv))
    )
    own = config.fleet.model_dump(include={"upload", "download", "jitter"}, exclude_none=True)
    if kind.measured_links and own.keys() & {"upload", "download"}:
        if not {"upload", "download"} <= own.keys():
            raise ConfigError(
                f"the links of fleet {config.fleet.name!r} are measured pairs; give both fleet.upload and fleet.download, or none"
            )
        own["measured_links"] = False
    return replace(kind, **own)


def local_settings(config: Config) -> LocalSettings:
    """How clients train under the configured scheme."""
    t, s = config.training, config.strategy
    settings = LocalSettings(
        batch_size=t.batch_size,
        terms=terms(config),
        optimiser=optimiser(config),
        clip=t.clip,
        train_in=t.train_in if config.strategy.name in COMPOSED else "dense",
        probes=probes(config),
        up_bits=config.exchange.up_bits,
    )
    if isinstance(s, AdpConfig):
        return replace(settings, sends=(GRADIENT,))
    if isinstance(s, HeteroFLConfig):
        return replace(
            settings,
            scaler=s.scaler,
            mask_absent_labels=s.mask_absent_labels,
            sends=(LABELS,) if s.label_split else (),
        )
    return settings


def terms(config: Config) -> tuple[Term, ...]:
    """What clients add to their loss."""
    s, mu = config.strategy, config.objective.proximal
    weight = s.regulariser if isinstance(s, FlancConfig) else config.training.regulariser
    penalty: tuple[Term, ...] = (Orthogonality(weight),) if weight else ()
    return (*penalty, Proximal(mu)) if mu else penalty


def optimiser(config: Config) -> Optimiser:
    """How clients move their parameters."""
    t = config.training
    if t.optimiser == "adamw":
        return AdamW(t.momentum, t.beta2, t.epsilon, t.weight_decay)
    return Sgd(t.momentum, t.weight_decay)


def probes(config: Config) -> int:
    """Estimates are made only where the scheme uses them; ADP's need one batch."""
    if (
        isinstance(config.strategy, HeroesConfig)
        and config.strategy.adaptive_tau
        and config.strategy.pace != "constant"
    ):
        return config.training.probes
    return 1 if isinstance(config.strategy, AdpConfig) else 0


def measure_costs(config: Config, family: Family, train: Examples, aim: Objective) -> Costs:
    """What each width costs under the configured scheme."""
    composed = config.strategy.name in COMPOSED
    batch = np.arange(config.training.batch_size) % len(train)
    inputs, targets = train.batch(batch, torch.device("cpu"))
    widths = range(1, family.max_width + 1)
    try:
        mean = aim.loss.mean
        dense = [step_flops(family.dense(width).module, inputs, targets, mean) for width in widths]
        step = dense
        if composed and config.training.train_in == "factors":
            step = [step_flops(family.composed(width).module, inputs, targets, mean) for width in widths]
    except TrainingError as error:  # outputs do not fit the loss, or a loss of the user's failed
        raise DataError(str(error)) from error
    except Exception as error:  # the user's model can fail in any way
        shape = tuple(inputs.shape[1:])
        raise DataError(
            f"the model does not take the data (inputs of shape {shape}, {inputs.dtype}): {error}"
        ) from error
    shapes = [(family.tensor_shapes(w) if composed else family.weight_shapes(w)).values() for w in widths]
    up = np.array([tensors_bytes(of_width, config.exchange.up_bits) for of_width in shapes])
    if config.strategy.name == "adp":
        up = up + np.array(
            [tensors_bytes(of_width, 32) for of_width in shapes]
        )  # the gradient travels too, as it is
    down = np.array([tensors_bytes(of_width, config.exchange.down_bits) for of_width in shapes])
    return Costs(np.array(step, dtype=float), np.array(dense, dtype=float), up, down)


def scheme(config: Config, family: Family, costs: Costs) -> Strategy[Any]:
    """The scheme from its section of the configuration."""
    s, t, f = config.strategy, config.training, config.federation
    combine = overlay(config.robust.combine, config.robust.trim)
    rate = LearningRate(t.learning_rate, t.learning_rate_decay, t.learning_rate_floor)
    download = config.fleet.count_download or config.engine.clock == "wall"  # real downloads take real time
    if isinstance(s, FedAvgConfig):
        return FedAvg(family, costs, rate, s.tau, download, combine)
    if isinstance(s, AdpConfig):
        return Adp(
            family, costs, rate, f.rounds, s.tau_first, s.tau_max, s.phi, f.time_budget, download, combine
        )
    limit = None if s.step_limit == "auto" else s.step_limit
    if isinstance(s, HeteroFLConfig):
        return HeteroFL(family, costs, rate, s.tau, limit, s.label_split, download, combine)
    if isinstance(s, FlancConfig):
        return Flanc(family, costs, rate, s.tau, limit, download, combine)
    return Heroes(
        family=family,
        costs=costs,
        learning_rate=rate,
        rounds=f.rounds,
        step_limit=limit,
        limits=Limits(s.tau_first, s.tau_min, s.tau_max),
        blocks=s.blocks,
        adaptive_tau=s.adaptive_tau,
        pace=s.pace,
        deadline=s.deadline,
        rho=None if s.rho == "auto" else s.rho,
        threshold=s.threshold,
        time_budget=f.time_budget,
        probes=probes(config),
        probe_every=t.probe_every,
        count_download=download,
        overlay=combine,
    )


def carrier(
    config: Config,
    trainer: Trainer,
    data: FederatedData,
    costs: Costs,
    progress: Progress | None = None,
    wall: WallClock | None = None,
    fleet: Fleet | MeasuredFleet | None = None,
) -> Engine:
    """The engine from its section of the configuration."""
    e = config.engine
    if e.name == "in_process":
        return InProcessEngine(trainer, data, config.evaluation.batch_size)

    def flops(assignment: Assignment) -> float:
        width = assignment.selection.width - 1
        probing = 2 * trainer.settings.probes * costs.probe_flops[width] if assignment.probes else 0.0
        return float(assignment.tau * costs.step_flops[width] + probing)

    if e.name == "mpi":
        batch_size = config.evaluation.batch_size
        return MpiEngine(
            data,
            batch_size,
            begin=to_toml(config),
            task_seconds=e.task_seconds,
            cost=flops,
            objective=trainer.settings.objective,
        )
    if e.name == "flower":
        from heroes.transport.engines.flower import FlowerEngine  # Flower is loaded here, where it is needed

        return FlowerEngine(
            trainer,
            data,
            config.evaluation.batch_size,
            config=to_toml(config),
            wanted=config.federation.clients if wall is None else config.federation.cohort,
            least=max(1, config.server.at_least),
            down_bits=config.exchange.down_bits,
            task_seconds=e.task_seconds,
            wait_seconds=e.wait_seconds,
            progress=progress,
            clock=wall,
            fleet=fleet if isinstance(fleet, MeasuredFleet) else None,
            flops=flops,
        )
    start = None if e.start == "auto" else e.start
    return ProcessEngine(
        trainer,
        data,
        config.evaluation.batch_size,
        workers=e.workers,
        start=start,
        task_seconds=e.task_seconds,
        cost=flops,
    )


def feedback(strategy: Strategy[Any]) -> Feedback:
    """A place for what rounding leaves out, for the tensors of this scheme."""
    return Feedback({name: tuple(tensor.shape) for name, tensor in strategy.begin(0).tensors.items()})


def stop_rule(config: Config) -> Stop:
    f = config.federation
    traffic = None if f.traffic_budget is None else int(f.traffic_budget * 1e6)
    return Stop(f.rounds, f.time_budget, traffic, f.target_accuracy, f.target_loss, f.target)


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
