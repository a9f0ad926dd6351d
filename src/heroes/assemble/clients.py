"""What is needed where clients train, and what their work costs."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from heroes import seeds
from heroes.assemble.elsewhere import received
from heroes.assemble.own import NOTHING, Own
from heroes.assemble.own_file import with_file
from heroes.assemble.world import dataset, federated, model_build, named_model, shared
from heroes.client import precision
from heroes.client.extras import LABELS
from heroes.client.losses import CrossEntropy
from heroes.client.objectives import Objective, make_objective
from heroes.client.optimisers import AdamW, Sgd
from heroes.client.terms import Orthogonality, Proximal, Term
from heroes.client.training import LocalSettings, Trainer, one_thread, scaled_layers
from heroes.contracts import LocalOptimiser
from heroes.data import Examples, FederatedData, Progress
from heroes.errors import ConfigError, DataError, ModelError, TrainingError
from heroes.fleet.costs import MeanLoss
from heroes.messages import Floats
from heroes.models.checking import refuse_another_function, remark_on_cuts, same_buffers
from heroes.models.family import Build, Family
from heroes.models.prices import COSTS, Count, Step
from heroes.planning.loads import Costs
from heroes.seeds import Seed
from heroes.server.sampling import needs_utility
from heroes.settings.config import Config
from heroes.slices.exchange import tensors_bytes
from heroes.slices.uploads import upload_bytes
from heroes.strategies.base import Duties

FEW = 4
"""examples on which a model is tried"""
_FITTING = {
    (1, True): "; model.name = 'mlp' would",
    (1, False): "; model.name = 'text_cnn' or 'char_rnn' would",
    (3, True): "; model.name = 'cnn' would, and with three channels 'resnet18'",
}
"""the models for inputs of so many dimensions, of floats or not"""


def at_clients(
    config: Config, own: Own = NOTHING, progress: Progress | None = None, seed: Seed | None = None
) -> tuple[Trainer, FederatedData]:
    """The trainer, and all data, shared out over the clients. `seed` replaces the configured one."""
    seed = config.seed if seed is None else seed
    device = torch_devices(config)[0]
    settings = local_settings(config, objective(config, own))
    if own.model is None:
        named_model(config.model.name)  # before data is read, which may take long
    chosen = shared(config, own.data, seed, progress) or federated(
        config, dataset(config, progress, seed), seed, progress
    )
    if len(chosen.shares) != config.federation.clients:
        raise ConfigError(
            f"federation.clients is {config.federation.clients} but the data is shared over "
            f"{len(chosen.shares)} clients"
        )
    check_targets(settings, chosen)
    if (few := config.evaluation.sample) is not None and few < len(chosen.test):
        chosen = replace(chosen, sample=chosen.test.drawn(few, seeds.stream(seed, "evaluation", "sample")))
    build = own.model or model_build(config, chosen)
    check_layers(build)
    family = Family(build, config.model.max_width, config.model.rank_ratio)
    if settings.scaler and not scaled_layers(family.module(1)):
        raise ConfigError(
            "strategy.scaler is true, but it scales convolutions and linear layers before the last, of which "
            "this model has none; use false"
        )
    return Trainer(family, settings, device), chosen


def check_layers(build: Build) -> None:
    """Raise a ModelError for layers that can neither be cut nor trained.

    A model that cannot be built is reported by its family.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            found = dict(build(1).named_modules())
    except Exception:
        return
    for name, layer in found.items():
        what = f"layer {name!r} of the model" if name else "the model"
        if isinstance(layer, torch.jit.ScriptModule):
            raise ModelError(
                f"{what} is compiled by torch.jit and cannot be cut: give the plain module, and compile what "
                "run.model() gives"
            )
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse:
            raise ModelError(f"{what} has sparse=True: gradients of heroes are dense, so say sparse=False")


def at_node(own: Own, text: str, client: int) -> tuple[Trainer, FederatedData]:
    """What a client in another process trains with, from the server's configuration as text."""
    return _at_node(own, text)


def from_file(text: str, client: int) -> tuple[Trainer, FederatedData]:
    """The same with the parts of the file that the configuration names: only in processes of this machine,
    since a server must not choose which files a node runs.
    """
    return _at_node(None, text)


@lru_cache(maxsize=2)
def _at_node(own: Own | None, text: str) -> tuple[Trainer, FederatedData]:
    """Kept from one message to the next, for whichever clients this process has."""
    own = with_file(NOTHING, tomllib.loads(text)) if own is None else own
    config, keys = received(text, own.strategy_class)
    return at_clients(config, own, seed=keys)


def local_settings(config: Config, aim: Objective) -> LocalSettings:
    """How clients train under the configured strategy."""
    t, duties = config.training, config.strategy.duties(config.training.probes)
    return LocalSettings(
        batch_size=t.batch_size,
        objective=aim,
        terms=terms(config, duties),
        optimiser=local_optimiser(config),
        clip=t.clip,
        precision=t.precision,
        train_in=t.train_in if config.strategy.holds == "factors" else "dense",
        probes=duties.probes,
        up_bits=config.exchange.up_bits,
        up_share=1.0 - config.exchange.sparsity,
        scaler=duties.scaler,
        mask_absent_labels=duties.mask_absent_labels,
        any_width=duties.any_width,
        distil=duties.distil,
        tries_coarser=duties.tries_coarser,
        utility=needs_utility(config.federation.sampler),
        sends=duties.sends,
    )


def objective(config: Config, own: Own) -> Objective:
    """What is minimised and what is measured; parts may be the user's own."""
    aim, wanted = config.objective, config.federation.target_accuracy
    if wanted is not None and "accuracy" not in aim.measured:
        raise ConfigError(
            f"federation.target_accuracy is {wanted:g} but accuracy is not measured: objective.metrics has "
            f"{', '.join(aim.measured)}; federation.target is for {aim.measured[0]}"
        )
    return make_objective(aim.name, aim.measured, aim.label_smoothing, own.loss, own.metrics)


def terms(config: Config, duties: Duties) -> tuple[Term, ...]:
    """What clients add to their loss: what the strategy asks for, then what the configuration does."""
    weight, mu = config.training.regulariser, config.objective.proximal
    penalty: tuple[Term, ...] = (Orthogonality(weight),) if weight else ()
    return (*duties.terms, *penalty, *((Proximal(mu),) if mu else ()))


def local_optimiser(config: Config) -> LocalOptimiser:
    """How clients move their parameters."""
    t = config.training
    if t.optimiser == "adamw":
        return AdamW(t.momentum, t.beta2, t.epsilon, t.weight_decay)
    return Sgd(t.momentum, t.weight_decay)


def check_targets(settings: LocalSettings, data: FederatedData) -> None:
    """Raise an error if the objective or the strategy cannot learn from these targets."""
    for examples in (data.train, data.test):
        settings.objective.loss.check(examples.targets)
        if not examples.are_classes and (settings.mask_absent_labels or LABELS in settings.sends):
            keys = "strategy.mask_absent_labels and strategy.label_split"
            kind = f"{examples.targets.dtype} of shape {tuple(examples.targets.shape)}"
            raise ConfigError(f"{keys} need class labels, but targets are {kind}; use false for both")
    if settings.distil and not isinstance(settings.objective.loss, CrossEntropy):
        raise ConfigError(
            "strategy.distil needs an objective with a score for every class, which "
            f"{settings.objective.loss.name!r} has not; use false"
        )


def measure_costs(
    family: Family, train: Examples, local: LocalSettings, down_bits: int, cost: str = "flops"
) -> Costs:
    """What each width costs clients that train like this, with steps charged by this `cost`."""
    dense, step = _flops(family, train, local, COSTS[cost])
    held = family.weight_shapes if local.train_in == "dense" else family.tensor_shapes
    shapes = [list(held(width).values()) for width in range(1, family.max_width + 1)]
    extra = [sum(each.nbytes(of_width) for each in local.sends) for of_width in shapes]

    def upload(width: int, bits: int, share: float) -> int:
        return upload_bytes(shapes[width - 1], bits, share) + extra[width - 1]

    widths = range(1, family.max_width + 1)
    up = np.array([upload(width, local.up_bits, local.up_share) for width in widths])
    down = np.array([tensors_bytes(of_width, down_bits) for of_width in shapes])
    steps = _mixed(np.array(step, dtype=float), local.any_width, local.distil)
    return Costs(steps, np.array(dense, dtype=float), up, down, upload)


def _mixed(step: Floats, any_width: float, distil: bool = False) -> Floats:
    """A step of each width on average, if this share of them is at a width drawn from 1 to it.

    A narrower step that distils is one of the whole width as well.

    >>> _mixed(np.array([1.0, 3.0]), 0.5).tolist(), _mixed(np.array([1.0, 3.0]), 1.0, distil=True).tolist()
    ([1.0, 2.5], [1.0, 3.5])
    """
    if any_width == 0:
        return step
    widths = np.arange(1, len(step) + 1)
    drawn = np.cumsum(step) / widths
    if distil:
        drawn += step * (widths - 1) / widths
    return (1 - any_width) * step + any_width * drawn


def _flops(
    family: Family, train: Examples, local: LocalSettings, count: Count
) -> tuple[list[float], list[float]]:
    """FLOPs of a step at every width: of the dense model, and of the one that is trained."""
    inputs, targets = train.batch(np.arange(local.batch_size) % len(train), torch.device("cpu"))
    widths, mean = range(1, family.max_width + 1), local.objective.loss.mean
    try:
        plain = [_dense_step(family, width, inputs, targets, mean, count) for width in widths]
        dense = [step.equivalent(plain[-1].unit) for step in plain]
        if local.train_in != "factors":
            return dense, dense
        refuse_another_function(family, inputs[:FEW])
        composed = [count(family.composed(width).module, inputs, targets, mean) for width in widths]
        return dense, [step.equivalent(plain[-1].unit) for step in composed]
    except ModelError:
        raise
    except TrainingError as error:  # outputs do not fit the loss, or a loss of the user's failed
        raise DataError(str(error)) from error
    except Exception as error:  # the user's model can fail in any way
        shape = tuple(inputs.shape[1:])
        fitting = _FITTING.get((len(shape), inputs.is_floating_point()), "")
        raise DataError(
            f"the model does not take the data (inputs of shape {shape}, {inputs.dtype}{fitting}): {error}"
        ) from error


def _dense_step(
    family: Family, width: int, inputs: Tensor, targets: Tensor, mean: MeanLoss, count: Count
) -> Step:
    """A step of the plain model; no buffer may change in it, nor in a test."""
    module = family.dense(width).module
    with same_buffers(module):
        step = count(module, inputs, targets, mean)
        module.eval()(inputs[:FEW])
    return step


def in_precision(trainer: Trainer, costs: Costs, progress: Progress | None) -> Trainer:
    """The same trainer in a precision that is settled; says where progress is said if this is slow here."""
    asked, device = trainer.settings.precision, trainer.device
    chosen = precision.settled(asked, device, float(costs.probe_flops[-1]))
    said = precision.remark(chosen, device)
    if progress is not None and said is not None:
        progress(said, 0, None)
    return Trainer(trainer.family, replace(trainer.settings, precision=chosen), device)


def settled(config: Config, chosen: str) -> Config:
    """The configuration with what training.precision became, as it is written down and sent to clients."""
    training = config.training.model_copy(update={"precision": chosen})
    return config.model_copy(update={"training": training})


def remark(family: Family, train: Examples, progress: Progress | None) -> None:
    """Say where progress is said if narrow models are no parts of wide ones."""
    if progress is None:
        return
    inputs, _ = train.batch(np.arange(FEW) % len(train), torch.device("cpu"))
    said = None
    with one_thread(), suppress(Exception):  # a model that cannot be tried in this way trains all the same
        said = remark_on_cuts(family, inputs)
    if said is not None:
        progress(said, 0, None)


def torch_devices(config: Config) -> tuple[torch.device, ...]:
    """Where clients train: the configured device, or the GPUs among which workers are shared out."""
    device, wanted = torch_device(config.training.device), config.engine.devices
    if device.type != "cuda":
        if wanted:
            raise ConfigError(
                f"engine.devices is {list(wanted)}, but clients train on {device.type}: it chooses among "
                "GPUs; leave it out, or use training.device = 'cuda'"
            )
        return (device,)
    there = torch.cuda.device_count()
    if strange := [number for number in wanted if number >= there]:
        raise ConfigError(f"engine.devices has {strange[0]}, but this machine's GPUs are 0 to {there - 1}")
    return tuple(torch.device("cuda", number) for number in wanted or range(there))


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
