"""A whole federation from a configuration and the user's own parts, with its engine open."""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from heroes.assemble import server as parts_of_server
from heroes.assemble.clients import (
    at_clients,
    at_node,
    from_file,
    in_precision,
    remark,
    settled,
    torch_devices,
)
from heroes.assemble.elsewhere import received, sent
from heroes.assemble.own import NOTHING, Own
from heroes.assemble.own_file import with_file
from heroes.assemble.server import planned
from heroes.assemble.serving import few, gathering
from heroes.assemble.world import fleet_kind
from heroes.client.training import Trainer
from heroes.contracts import Clock, Devices, Engine
from heroes.data import FederatedData, Progress
from heroes.errors import ConfigError
from heroes.federation import Federation, Policy
from heroes.fleet import Faults, Fleet, Foreseen, MeasuredFleet, Today, VirtualClock, WallClock
from heroes.messages import Assignment
from heroes.planning.loads import Costs
from heroes.settings.config import Config
from heroes.strategies.base import Strategy
from heroes.transport.engines.faulty import FaultyEngine
from heroes.transport.opening import Opener, Parts, Prepare, room


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
    """Yields everything that takes part in the configured run, the user's own parts included.

    The engine is open inside.
    """
    drawn = Fleet(fleet_kind(config), config.federation.clients, config.seed)
    trainer, data = at_clients(config, own, progress)
    strategy, costs = planned(config, trainer, data)
    trainer = in_precision(trainer, costs, progress)
    config = settled(config, trainer.settings.precision)
    if len(strategy.widths) > 1:
        remark(trainer.family, data.train, progress)
    chooser = parts_of_server.sampler(config, own)
    faults = parts_of_server.faults(config)
    server = config.server
    parts = engine_parts(config, own, trainer, data, strategy, costs)
    clock, fleet = clock_and_devices(config, drawn, faults, parts.cost)
    wall = clock if isinstance(clock, WallClock) else None
    with opener(replace(parts, clock=wall, progress=progress)) as carrier:
        if data.sample is not None:
            check_samples(carrier, len(data.sample))
        engine = carrier if faults is None else FaultyEngine(carrier, faults)
        yield Federation(
            strategy=strategy,
            engine=engine,
            clock=clock,
            fleet=fleet,
            cohort=config.federation.cohort,
            seed=config.seed,
            family=trainer.family,
            sends=trainer.settings.sends,
            down_bits=config.exchange.down_bits,
            feedback=parts_of_server.feedback(strategy) if config.exchange.error_feedback else None,
            availability=parts_of_server.availability(faults, engine),
            sampler=chooser,
            policy=Policy(server.at_least, server.attempts, server.oversample),
            defence=parts_of_server.defence(config),
            privacy=parts_of_server.privacy(config, chooser),
            optimiser=parts_of_server.server_optimiser(config),
            average=config.evaluation.average,
            lookback=config.evaluation.lookback,
            sampled=data.sample is not None,
            precision=config.training.precision,
            inputs=few(data.test),
            energy=drawn.energy if wall is None else None,  # who knows what real clients use
            gather=gathering(config, trainer.family, data, trainer.device),
        )


def check_samples(engine: Engine, sample: int) -> None:
    """Raise a ConfigError if an engine of the user's own cannot test on a sample."""
    takes = inspect.signature(engine.score).parameters.values()
    if not any(each.name == "sample" or each.kind is each.VAR_KEYWORD for each in takes):
        raise ConfigError(
            f"evaluation.sample is {sample}, but score() of your engine has no argument 'sample': add it, or "
            "use evaluation.sample = 'none'"
        )


def clock_and_devices(
    config: Config, drawn: Fleet, faults: Faults | None, flops: Callable[[Assignment], float]
) -> tuple[Clock, Devices]:
    """The clock, and the devices as plans are made with them: as they are today, or as they were before."""
    limits = config.server.deadline, config.server.deadline_factor
    if config.engine.clock == "wall":
        return WallClock(*limits), MeasuredFleet(drawn)
    if config.fleet.foresight == "expected":
        today = Today(drawn, flops, config.fleet.count_download)
        return VirtualClock(faults, *limits, today), Foreseen(drawn)
    return VirtualClock(faults, *limits), drawn


def followed(own: Own, text: str) -> Parts:
    """What a process of a job needs that serves the leading one, from that one's configuration as text."""
    own = with_file(own, tomllib.loads(text))
    config, keys = received(text, own.strategy_class)
    trainer, data = at_clients(config, own, seed=keys)
    return engine_parts(config, own, trainer, data, *planned(config, trainer, data))


def _elsewhere(own: Own) -> Prepare | None:
    """How processes elsewhere set themselves up; None if they cannot."""
    if own.file is not None:
        return from_file
    return None if own.elsewhere is None else partial(at_node, own.elsewhere)


def engine_parts(
    config: Config, own: Own, trainer: Trainer, data: FederatedData, strategy: Strategy, costs: Costs
) -> Parts:
    """What any engine opens from, in plain values."""
    e = config.engine

    def flops(assignment: Assignment) -> float:
        width = assignment.selection.width - 1
        probing = 2 * trainer.settings.probes * costs.probe_flops[width] if assignment.probes else 0.0
        return float(assignment.steps * assignment.batch * costs.step_flops[width] + probing)

    return Parts(
        trainer,
        data,
        config.evaluation.batch_size,
        config=sent(config),
        prepare=_elsewhere(own),
        cohort=config.federation.cohort,
        asked=math.ceil(config.federation.cohort * config.server.oversample),
        least=config.server.at_least,
        workers=e.workers,
        devices=torch_devices(config),
        start=None if e.start == "auto" else e.start,
        task_seconds=e.task_seconds,
        wait_seconds=e.wait_seconds,
        down_bits=config.exchange.down_bits,
        cost=flops,
        widths=strategy.widths,
        model_out=e.model_out,
        model_width=e.model_width,
    )
