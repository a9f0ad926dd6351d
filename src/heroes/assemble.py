"""Names to objects: the only file that knows every room. The configuration stops here; below it there are
plain values.
"""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from heroes import seeds
from heroes.client.objectives import Orthogonality
from heroes.client.training import LocalSettings, Trainer, one_thread
from heroes.contracts import Availability, Engine, Sampler, ServerOptimiser
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
from heroes.errors import ConfigError, DataError, did_you_mean
from heroes.federation import Federation, Policy, Stop
from heroes.fleet import (
    FLEETS,
    Connected,
    DayAndNight,
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
from heroes.planning.loads import Costs
from heroes.planning.schedule import LearningRate
from heroes.server.defence import Defence, overlay
from heroes.server.optimisers import Adam, Momentum, Yogi
from heroes.server.privacy import Privacy
from heroes.server.sampling import SAMPLERS, fitting
from heroes.settings.config import Config, parse, to_toml
from heroes.settings.sections import FaultsConfig
from heroes.slices.exchange import tensors_bytes
from heroes.slices.feedback import Feedback
from heroes.strategies.base import Ground, Strategy
from heroes.transport.engines.faulty import FaultyEngine
from heroes.transport.opening import Opener, Parts, room

T = TypeVar("T")
OwnData = FederatedData | Dataset | tuple[Examples, Examples]


@dataclass(frozen=True)
class Own:
    """The user's own parts of a run, in place of those that the configuration names."""

    model: Build | None = None
    data: OwnData | None = None
    sampler: Sampler | None = None

    @property
    def travels(self) -> bool:
        """Whether processes elsewhere can be given these parts: models and data stay where they are."""
        return self.model is None and self.data is None

    def named(self, config: Config) -> Config:
        """The configuration that says where parts are the user's own, since it alone cannot repeat the run."""
        own = {f"{key}.name": "own" for key, part in self._parts() if part is not None}
        return config.changed(own) if own else config

    def check_again(self, config: Config, folder: Path) -> None:
        """ConfigError unless the run in this folder began with own parts in the same places."""
        for key, part in self._parts():
            began_with = getattr(config, key).name == "own"
            if began_with != (part is not None):
                does = "was run with your own" if began_with else "was not run with your own"
                raise ConfigError(
                    f"{str(folder)!r} {does} {key}: heroes.resume(folder, {key}=...) must be called accordingly"
                )

    def _parts(self) -> Iterator[tuple[str, object]]:
        """Which sections of the configuration parts of the user's own would replace."""
        yield "model", self.model
        yield "data", self.data


NOTHING = Own()


def entered(
    config: Config, own: Own = NOTHING, engine: Opener | None = None
) -> AbstractContextManager[Opener]:
    """Yields what opens the engine: the user's `engine`, else the one that the configuration names. Of a job
    of several processes only the one that leads comes out; the others serve it until the context ends.
    """
    if engine is None:
        return room(config.engine.name, partial(followed, own))
    if not callable(engine):
        raise ConfigError(
            f"engine is {engine!r}; give a function that opens an engine of your own from "
            "heroes.transport.opening.Parts, or name one with engine.name in the configuration"
        )
    return nullcontext(engine)


@contextmanager
def assembled(
    config: Config, opener: Opener, own: Own = NOTHING, progress: Progress | None = None
) -> Iterator[Federation]:
    """Everything that takes part in the run that the configuration describes, with the user's own parts in
    their places. The engine that `opener` opens is open inside.
    """
    drawn = Fleet(fleet_kind(config), config.federation.clients, config.seed)
    trainer, data = at_clients(config, own, progress)
    strategy, costs = planned(config, trainer, data)
    chooser = sampler_of(config) if own.sampler is None else fitting(own.sampler)
    troubled = config.faults != FaultsConfig()
    faults = (
        Faults(config.seed, config.federation.clients, **config.faults.model_dump()) if troubled else None
    )
    server = config.server
    wall = WallClock(server.deadline, server.deadline_factor) if config.engine.clock == "wall" else None
    fleet = drawn if wall is None else MeasuredFleet(drawn)
    parts = engine_parts(config, own, trainer, data, strategy, costs)
    with opener(replace(parts, clock=wall, progress=progress)) as carrier:
        engine = carrier if faults is None else FaultyEngine(carrier, faults)
        yield Federation(
            strategy=strategy,
            engine=engine,
            clock=wall or VirtualClock(faults, server.deadline, server.deadline_factor),
            fleet=fleet,
            cohort=config.federation.cohort,
            seed=config.seed,
            family=trainer.family,
            sends=trainer.settings.sends,
            down_bits=config.exchange.down_bits,
            feedback=feedback(strategy) if config.exchange.error_feedback else None,
            availability=availability(faults, engine),
            sampler=chooser,
            policy=Policy(server.at_least, server.attempts, server.oversample),
            defence=Defence(config.robust.clip, config.robust.guard, config.robust.guard_factor),
            privacy=privacy(config, chooser),
            optimiser=server_optimiser(config),
            average=config.evaluation.average,
        )


def planned(config: Config, trainer: Trainer, data: FederatedData) -> tuple[Strategy, Costs]:
    """The strategy, and what each width costs under it."""
    with one_thread():  # counting gains nothing from more, and on a busy machine they wait for each other
        costs = measure_costs(trainer.family, data.train, trainer.settings, config.exchange.down_bits)
    return config.strategy.on(ground(config, trainer.family, costs)), costs


def at_clients(
    config: Config, own: Own = NOTHING, progress: Progress | None = None
) -> tuple[Trainer, FederatedData]:
    """What is needed where clients train: who trains, and all data, shared out."""
    device = torch_device(config.training.device)
    if own.model is None:
        named("model.name", config.model.name, MODELS)
    chosen = shared(config, own.data) or federated(config, dataset(config, progress))
    if len(chosen.shares) != config.federation.clients:
        raise ConfigError(
            f"federation.clients is {config.federation.clients} but the data is shared over {len(chosen.shares)} clients"
        )
    build = own.model or model_build(config, chosen)
    family = Family(build, config.model.max_width, config.model.rank_ratio)
    return Trainer(family, local_settings(config), device), chosen


def at_node(own: Own, text: str, client: int) -> tuple[Trainer, FederatedData]:
    """What a client somewhere else trains with, from the server's configuration as text."""
    return _at_node(own, text)


@lru_cache(maxsize=2)
def _at_node(own: Own, text: str) -> tuple[Trainer, FederatedData]:
    """Kept from one message to the next, for whichever clients this process has."""
    return at_clients(parse(tomllib.loads(text)), own)


def followed(own: Own, text: str) -> Parts:
    """What a process of a job needs that serves the leading one, from that one's configuration as text."""
    config = parse(tomllib.loads(text))
    trainer, data = at_clients(config, own)
    return engine_parts(config, own, trainer, data, *planned(config, trainer, data))


def shared(config: Config, data: object) -> FederatedData | None:
    """The user's data, shared out if it is not yet."""
    if data is None or isinstance(data, FederatedData):
        return data
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Examples) for part in data):
        data = Dataset(*data)
    if not isinstance(data, Dataset):
        raise DataError(
            f"data is a {type(data).__name__}; give (train, test) as heroes.Examples, or heroes.FederatedData"
        )
    return federated(config, data)


def availability(faults: Faults | None, engine: Engine) -> Availability:
    """Who can be asked: those awake in the pretend world, those that a real engine can reach, or everybody."""
    if faults is not None and faults.availability != "always":
        return DayAndNight(faults)
    return Connected(engine.present)


def sampler_of(config: Config) -> Sampler:
    """The named sampler."""
    return named("federation.sampler", config.federation.sampler, SAMPLERS)()


def server_optimiser(config: Config) -> ServerOptimiser | None:
    """What makes a step of a round's change, if it is not added as it is."""
    o = config.optimiser
    if o.name == "none":
        return None
    if o.name == "momentum":
        return Momentum(1.0 if o.rate == "auto" else o.rate, o.momentum)
    kind = Adam if o.name == "adam" else Yogi
    return kind(0.01 if o.rate == "auto" else o.rate, o.momentum, o.beta2, o.epsilon)


def privacy(config: Config, sampler: Sampler) -> Privacy | None:
    """What hides each client's part, if it is to be hidden."""
    p, f = config.privacy, config.federation
    if p.noise == 0:
        return None
    if not sampler.uniform:
        raise ConfigError(
            f"privacy.noise is {p.noise}: its accountant covers clients drawn uniformly without replacement, which "
            f"the sampler {sampler.name!r} does not do; use federation.sampler = 'uniform' or privacy.noise = 0"
        )
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
    has.
    """
    build = named("model.name", config.model.name, MODELS)
    takes = inspect.signature(build).parameters
    shown = int(max(data.train.targets.max(), data.test.targets.max())) + 1
    shape = data.train.inputs.shape
    found = {
        "classes": data.classes or shown,
        "image": shape[-1],
        "channels": shape[1] if len(shape) == 4 else 3,
    }
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
    """How clients train under the configured strategy."""
    t, duties = config.training, config.strategy.duties(config.training.probes)
    return LocalSettings(
        batch_size=t.batch_size,
        momentum=t.momentum,
        weight_decay=t.weight_decay,
        clip=t.clip,
        terms=(*duties.terms, *([Orthogonality(t.regulariser)] if t.regulariser else [])),
        train_in=t.train_in if config.strategy.holds == "factors" else "dense",
        probes=duties.probes,
        up_bits=config.exchange.up_bits,
        scaler=duties.scaler,
        mask_absent_labels=duties.mask_absent_labels,
        sends=duties.sends,
    )


def measure_costs(family: Family, train: Examples, local: LocalSettings, down_bits: int) -> Costs:
    """What each width costs clients that train like this."""
    inputs, targets = train.batch(np.arange(local.batch_size) % len(train), torch.device("cpu"))
    widths = range(1, family.max_width + 1)
    try:
        dense = [step_flops(family.dense(width).module, inputs, targets) for width in widths]
        step = dense
        if local.train_in == "factors":
            step = [step_flops(family.composed(width).module, inputs, targets) for width in widths]
    except Exception as error:  # the user's model can fail in any way
        shape = tuple(inputs.shape[1:])
        raise DataError(
            f"the model does not take the data (inputs of shape {shape}, {inputs.dtype}): {error}"
        ) from error
    held = family.weight_shapes if local.train_in == "dense" else family.tensor_shapes
    shapes = [list(held(width).values()) for width in widths]
    extra = [sum(each.nbytes(of_width) for each in local.sends) for of_width in shapes]
    up = np.array([tensors_bytes(of_width, local.up_bits) for of_width in shapes]) + np.array(extra)
    down = np.array([tensors_bytes(of_width, down_bits) for of_width in shapes])
    return Costs(np.array(step, dtype=float), np.array(dense, dtype=float), up, down)


def ground(config: Config, family: Family, costs: Costs) -> Ground:
    """What the run gives its strategy."""
    t, f = config.training, config.federation
    return Ground(
        family=family,
        costs=costs,
        learning_rate=LearningRate(t.learning_rate, t.learning_rate_decay, t.learning_rate_floor),
        overlay=overlay(config.robust.combine, config.robust.trim),
        rounds=f.rounds,
        time_budget=f.time_budget,
        count_download=config.fleet.count_download
        or config.engine.clock == "wall",  # real downloads take real time
        probes=t.probes,
        probe_every=t.probe_every,
    )


def engine_parts(
    config: Config, own: Own, trainer: Trainer, data: FederatedData, strategy: Strategy, costs: Costs
) -> Parts:
    """What any engine opens from, in plain values."""
    e = config.engine

    def flops(assignment: Assignment) -> float:
        width = assignment.selection.width - 1
        probing = 2 * trainer.settings.probes * costs.probe_flops[width] if assignment.probes else 0.0
        return float(assignment.tau * costs.step_flops[width] + probing)

    return Parts(
        trainer,
        data,
        config.evaluation.batch_size,
        config=to_toml(config),
        prepare=partial(at_node, own) if own.travels else None,
        cohort=config.federation.cohort,
        asked=math.ceil(config.federation.cohort * config.server.oversample),
        least=config.server.at_least,
        workers=e.workers,
        start=None if e.start == "auto" else e.start,
        task_seconds=e.task_seconds,
        wait_seconds=e.wait_seconds,
        down_bits=config.exchange.down_bits,
        cost=flops,
        widths=strategy.widths,
        model_out=e.model_out,
        model_width=e.model_width,
    )


def feedback(strategy: Strategy) -> Feedback:
    """A place for what rounding leaves out, for the tensors of this strategy."""
    return Feedback({name: tuple(tensor.shape) for name, tensor in strategy.begin(0).tensors.items()})


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
