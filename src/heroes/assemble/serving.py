"""The strategy of a run that is only to hand out its models: nothing is trained, so nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heroes.assemble.own import Own
from heroes.assemble.server import ground
from heroes.assemble.world import dataset, federated, model_build, named_model, shared
from heroes.data import Examples, FederatedData, Progress
from heroes.errors import ConfigError, DataError
from heroes.models.family import Build, Family
from heroes.planning.loads import Costs
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


def trial_inputs(config: Config, own: Own) -> Tensor:
    """A few test inputs of the configured data, as the model takes them; a DataError if it is not here."""
    return few(_data(config, own).test)


def few(examples: Examples) -> Tensor:
    """A few inputs as the model takes them; twice the same if there is only one."""
    indices = np.arange(max(2, min(FEW, len(examples)))) % len(examples)
    return examples.batch(indices, torch.device("cpu"))[0]
