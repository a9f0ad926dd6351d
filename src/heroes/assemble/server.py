"""The server's side of a federation: the strategy, who is asked, the optimiser, privacy, and when to stop."""

from __future__ import annotations

import math

from heroes.assemble.clients import measure_costs
from heroes.assemble.own import Own
from heroes.assemble.world import named
from heroes.client.training import Trainer, one_thread
from heroes.contracts import Availability, Engine, Sampler, ServerOptimiser
from heroes.data import FederatedData
from heroes.errors import ConfigError
from heroes.federation import Stop
from heroes.fleet import Connected, DayAndNight, Faults
from heroes.models.family import Family
from heroes.planning.loads import Costs, LearningRate
from heroes.server.defence import Defence, overlay
from heroes.server.optimisers import Adam, Momentum, Yogi
from heroes.server.privacy import Privacy
from heroes.server.sampling import SAMPLERS, fitting
from heroes.settings.config import Config
from heroes.settings.world_sections import FaultsConfig
from heroes.slices.feedback import Feedback
from heroes.strategies.base import Ground, Strategy

_ADAPTIVE_STRIDE = 30.0  # AdamW at 0.003 goes about as far as SGD with momentum at 0.1


def planned(config: Config, trainer: Trainer, data: FederatedData) -> tuple[Strategy, Costs]:
    """The strategy, and what each width costs under it."""
    with one_thread():  # counting gains nothing from more, and on a busy machine they wait for each other
        costs = measure_costs(
            trainer.family, data.train, trainer.settings, config.exchange.down_bits, config.fleet.cost
        )
    return config.strategy.on(ground(config, trainer.family, costs, data.shares.middle)), costs


def ground(config: Config, family: Family, costs: Costs, examples: float | None = None) -> Ground:
    """What the run gives its strategy; `examples` is how many the median client has, if that is known."""
    t, f = config.training, config.federation
    return Ground(
        family=family,
        costs=costs,
        learning_rate=LearningRate(t.learning_rate, t.learning_rate_decay, t.learning_rate_floor),
        overlay=overlay(config.robust.combine, config.robust.trim),
        rounds=f.rounds,
        time_budget=f.time_budget,
        count_download=config.fleet.count_download
        or config.engine.clock == "wall",  # real ones take real time
        probes=t.probes,
        probe_every=t.probe_every,
        up_bits=config.exchange.up_bits,
        momentum=t.momentum if t.optimiser == "sgd" else 0.0,
        one_pass=None if examples is None else max(1.0, examples / t.batch_size),
        stride=1.0 if t.optimiser == "sgd" else _ADAPTIVE_STRIDE,
    )


def faults(config: Config) -> Faults | None:
    """What goes wrong with clients, if anything is to."""
    if config.faults == FaultsConfig():
        return None
    return Faults(config.seed, config.federation.clients, **config.faults.model_dump())


def availability(faults: Faults | None, engine: Engine) -> Availability:
    """Who can be asked: clients that are awake, that the engine can reach, or everybody."""
    if faults is not None and faults.availability != "always":
        return DayAndNight(faults)
    return Connected(engine.present)


def sampler(config: Config, own: Own) -> Sampler:
    """Who chooses the clients: the user's own sampler, the strategy's, or the named one."""
    if own.sampler is not None:
        return fitting(own.sampler)
    return config.strategy.sampler() or named("federation.sampler", config.federation.sampler, SAMPLERS)()


def server_optimiser(config: Config) -> ServerOptimiser | None:
    """What makes a step of a round's change, if it is not added as it is."""
    o = config.optimiser
    if o.name == "none":
        return None
    if o.name == "momentum":
        return Momentum(1.0 if o.rate == "auto" else o.rate, o.momentum)
    kind = Adam if o.name == "adam" else Yogi
    return kind(0.01 if o.rate == "auto" else o.rate, o.momentum, o.beta2, o.epsilon)


def privacy(config: Config, chooser: Sampler) -> Privacy | None:
    """What hides each client's part, if it is to be hidden. Where clients are drawn out of those that happen
    to be there, of whom there may be few, that they are drawn does not count.
    """
    p, f = config.privacy, config.federation
    if p.noise == 0:
        return None
    if not chooser.uniform:
        raise ConfigError(
            f"privacy.noise is {p.noise}: its accountant covers clients drawn uniformly without replacement, "
            f"which the sampler {chooser.name!r} does not do; use federation.sampler = 'uniform' or "
            "privacy.noise = 0"
        )
    drawn = math.ceil(f.cohort * config.server.oversample)
    seed = config.seed if p.source == "seed" else None
    everybody = config.faults.availability == "always" and config.engine.clock == "virtual"
    return Privacy(p.clip, p.noise, p.delta, f.clients, drawn, seed, sampled=everybody)


def defence(config: Config) -> Defence | None:
    """What updates must pass before they enter the model; under privacy, clipping and nothing else."""
    r, p = config.robust, config.privacy
    if p.noise > 0:
        return Defence(clip=p.clip)
    return Defence(r.clip, r.guard, r.guard_factor) if r.clip is not None or r.guard else None


def feedback(strategy: Strategy) -> Feedback:
    """A place for what rounding leaves out, for the tensors of this strategy."""
    return Feedback({name: tuple(tensor.shape) for name, tensor in strategy.begin(0).tensors.items()})


def stop_rule(config: Config) -> Stop:
    f = config.federation
    traffic = None if f.traffic_budget is None else int(f.traffic_budget * 1e6)
    return Stop(f.rounds, f.time_budget, traffic, f.target_accuracy, f.target_loss, f.target, f.patience)
