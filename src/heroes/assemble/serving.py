"""The strategy of a run that is only to hand out its models: nothing is trained, so nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heroes import seeds
from heroes.assemble.own import Own
from heroes.assemble.server import ground
from heroes.assemble.world import dataset, federated, model_build, named_model, shared
from heroes.client.gathering import Gathering
from heroes.data import Examples, FederatedData, Progress
from heroes.errors import ConfigError, DataError
from heroes.messages import Tensors
from heroes.models.family import Build, Family
from heroes.planning.loads import Costs
from heroes.server.asking import Gather
from heroes.settings.config import Config
from heroes.strategies.base import Strategy

FEW = 8
"""examples on which an exported model is tried"""


def for_serving(config: Config, own: Own, arguments: Mapping[str, Any] | None) -> Strategy:
    """The configured strategy over its model family.

    `arguments` are what the model was built with; where they are not known, they are read off the data.
    """
    family = Family(_build(config, own, arguments), config.model.max_width, config.model.rank_ratio)
    free = np.ones(family.max_width)
    costs = Costs(free, free, free.astype(np.int64), free.astype(np.int64))
    return config.strategy.on(ground(config, family, costs))


def _build(config: Config, own: Own, arguments: Mapping[str, Any] | None) -> Build:
    if own.model is not None:
        return own.model
    if config.model.name == "own":
        raise ConfigError(f"the run was trained with a model of your own, {_gone(config, 'model=build')}")
    if arguments is not None:
        return partial(named_model(config.model.name), **arguments)
    return model_build(config, _data(config, own))


def _data(config: Config, own: Own, progress: Progress | None = None) -> FederatedData:
    if own.data is None and config.data.name == "own":
        raise DataError(f"the run was trained on data of your own, {_gone(config, 'data=...')}")
    own_data = shared(config, own.data, config.seed, progress)
    return own_data or federated(config, dataset(config, progress, config.seed), config.seed)


def _gone(config: Config, part: str) -> str:
    """Why a part of the user's own is not here, and how to have it."""
    again = f"give it again, heroes.load(folder, {part})"
    if config.own.file is not None:
        named = "name the one to use, --own FILE or heroes.load(folder, own=FILE)"
        return f"from {config.own.file!r}, which is gone or has changed: put it back, or {named}"
    return f"which its folder does not hold: {again}; the command line finds what was given by --own"


def gathering(
    config: Config, family: Family, data: FederatedData, device: torch.device | None = None
) -> Gathering | None:
    """What gathers the statistics of batch norms: from as many of the clients' examples as a test takes at
    once. None if the model has no batch norms that need it.
    """
    if not family.kept_names:
        return None
    if config.privacy.noise > 0:
        raise ConfigError(
            f"privacy.noise is {config.privacy.noise}: noise cannot protect the clients' examples that the "
            "statistics of batch norms are gathered from; use model.norm = 'group', or nn.GroupNorm "
            "in a model of your own"
        )
    numbers = data.some(config.evaluation.batch_size, seeds.stream(config.seed, "statistics"))
    return Gathering(family, data.train.batch(numbers, device or torch.device("cpu"))[0])


def gathering_again(config: Config, own: Own, family: Family) -> Gather | None:
    """The same for a run that has ended; the data is read when the first model is asked for."""

    @lru_cache(maxsize=1)
    def made() -> Gathering | None:
        return gathering(config, family, _data(config, own))

    def gather(tensors: Tensors, width: int) -> Tensors:
        found = made()
        return {} if found is None else found(tensors, width)

    return gather if family.kept_names else None


def trial_inputs(config: Config, own: Own) -> Tensor:
    """A few test inputs of the configured data, as the model takes them; a DataError if it is not here."""
    return few(_data(config, own).test)


def few(examples: Examples) -> Tensor:
    """A few inputs as the model takes them; twice the same if there is only one."""
    indices = np.arange(max(2, min(FEW, len(examples)))) % len(examples)
    return examples.batch(indices, torch.device("cpu"))[0]
