"""What the configuration names of the world: data and how it is shared out, the model, the fleet."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from heroes import plugins, seeds
from heroes.data import (
    DATASETS,
    MAY_LEAVE_OUT,
    PARTITIONS,
    DataOptions,
    Dataset,
    Examples,
    FederatedData,
    Numbers,
    Progress,
    Shares,
    held_out,
    held_out_of_shares,
    load,
    share_out,
    tested,
)
from heroes.errors import ConfigError, DataError, did_you_mean
from heroes.fleet import FLEETS, Device, Fleet, FleetKind, read_fleet
from heroes.models import MODELS
from heroes.models.family import Build
from heroes.seeds import Seed
from heroes.settings.config import Config
from heroes.settings.sections import LEVELS

T = TypeVar("T")
_PATHS = ("directory", "source", "test", "writers")  # among the options of a data set
_WORTH_A_NOTE = 0.9  # of the examples are used; what is left over in dealing whole examples is less


def named(key: str, name: str, choices: Mapping[str, T]) -> T:
    """The choice of this name, or an error that says which key is wrong."""
    if name not in choices:
        raise ConfigError(f"{key} is {name!r}: {did_you_mean(name, choices)}")
    return choices[name]


def dataset(config: Config, progress: Progress | None, seed: Seed) -> Dataset:
    """The named data set, with the options that the configuration has for it."""
    named("data.partition", config.data.partition, PARTITIONS)
    takes = {field.name for field in fields(DataOptions)}
    options = {key: value for key, value in config.data.model_dump().items() if key in takes}
    options |= {key: Path(options[key]) for key in _PATHS if options[key] is not None}
    if options["targets"] == "auto":
        options["targets"] = "numbers" if config.objective.name == "mean_squared_error" else "classes"
    own = seed if config.data.name in DATASETS else seeds.number(seed, "data", config.data.name)
    found = load(config.data.name, DataOptions(**{"seed": own, "progress": progress, **options}))
    if found.skipped and progress is not None:
        progress(f"{len(found.skipped)} files left out, for example {found.skipped[0]}", 0, None)
    scale = found.about.get("target")
    if isinstance(scale, Numbers) and progress is not None:
        progress(
            f"targets have mean {scale.mean:g} and standard deviation {scale.deviation:g}, which is what an "
            "error of 1 means",
            0,
            None,
        )
    return found


def shared(
    config: Config, data: object, seed: Seed, progress: Progress | None = None
) -> FederatedData | None:
    """The user's data, shared out if it is not yet."""
    if data is None:
        return None
    if callable(data):
        data = data(config)
    if isinstance(data, FederatedData):
        return _validated(config, data, seed)
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Examples) for part in data):
        data = Dataset(*data)
    if not isinstance(data, Dataset):
        raise DataError(
            f"data is a {type(data).__name__}; give (train, test) as heroes.Examples, or heroes.FederatedData"
        )
    return federated(config, data, seed, progress)


def federated(config: Config, data: Dataset, seed: Seed, progress: Progress | None = None) -> FederatedData:
    """Share the training examples out as configured; `progress` hears of examples that are not used."""
    name, clients = config.data.partition, config.federation.clients
    named("data.partition", name, PARTITIONS)
    d, rest, test = config.data, np.arange(len(data.train)), data.test
    if d.validation:
        rest, held = held_out(data, d.validation, seeds.stream(seed, "validation"))
        test = data.train.only(tested(held, d.test_limit, seed))
    level = getattr(d, LEVELS[name]) if name in LEVELS else None
    shares = share_out(
        name,
        data.train.targets.numpy()[rest],
        clients,
        seeds.stream(seed, "partition"),
        level,
        owners=None if data.owners is None else data.owners[rest],
        device_of=Fleet(fleet_kind(config), clients, seed).device_of if name == "by_device" else None,
        examples_per_client=d.examples_per_client,
        size_kind=d.sizes,
        skew=d.skew,
    )
    if progress is not None and isinstance(shares, Shares) and name in MAY_LEAVE_OUT:
        used, of = int(shares.starts[-1]), len(rest)
        if used < _WORTH_A_NOTE * of:
            progress(_left_out(name, used, of), 0, None)
    shares = shares.among(rest) if d.validation else shares
    return FederatedData(data.train, test, shares, len(data.class_names) or None)


def _validated(config: Config, data: FederatedData, seed: Seed) -> FederatedData:
    """Data that is shared out, tested on what is held out of it if the configuration says so."""
    share = config.data.validation
    if not share:
        return data
    rest, held = held_out_of_shares(data, share, seeds.stream(seed, "validation"))
    return replace(rest, test=data.train.only(tested(np.unique(held), config.data.test_limit, seed)))


def _left_out(name: str, used: int, of: int) -> str:
    uses = f"{name} uses {used:,} of {of:,} training examples"
    if name == "classes":
        return f"{uses}, since some classes are nobody's: more clients or data.classes_per_client would help"
    return (
        f"{uses}, since every client gets as many as the rarest class allows; data.partition = 'gamma_all' "
        "deals all of them out"
    )


def model_build(config: Config, data: FederatedData) -> Build:
    """The named model, given the options it accepts and what the data has: classes, channels and so on.

    Float targets are not classes: then the model keeps its own default number of outputs.
    """
    build = named_model(config.model.name)
    takes = inspect.signature(build).parameters
    shape = data.train.inputs.shape
    found = {"image": shape[-1], "channels": shape[1] if len(shape) == 4 else 3, "features": shape[-1]}
    if (vocabulary := getattr(data.train.transform, "vocabulary", None)) is not None:
        found["vocabulary"] = vocabulary
    if not data.train.targets.dtype.is_floating_point:
        shown = int(max(data.train.targets.max(), data.test.targets.max())) + 1
        found["classes"] = data.classes or shown
    wanted = (found | config.model.model_dump()).items()
    return partial(build, **{key: value for key, value in wanted if key in takes and key != "name"})


def named_model(name: str) -> Build:
    """The model of this name, built in or another package's."""
    build = plugins.find("model", "model.name", name, MODELS)
    if not callable(build):
        raise ConfigError(
            f"the model {name!r} is {build!r}; it should be a function build(width) -> nn.Module"
        )
    return build


def fleet_kind(config: Config) -> FleetKind:
    """The named fleet, with what the configuration puts in its place."""
    kind = named_fleet(config.fleet.name) if config.fleet.csv is None else read_fleet(Path(config.fleet.csv))
    own = config.fleet.model_dump(include={"upload", "download", "jitter"}, exclude_none=True)
    if kind.measured_links and own.keys() & {"upload", "download"}:
        if not {"upload", "download"} <= own.keys():
            raise ConfigError(
                f"the links of fleet {config.fleet.name!r} are measured pairs; give both fleet.upload and "
                "fleet.download, or none"
            )
        own["measured_links"] = False
    return replace(kind, devices=_shared_out(kind.devices, config.fleet.shares), **own)


def _shared_out(devices: tuple[Device, ...], shares: Sequence[float] | None) -> tuple[Device, ...]:
    """The devices with as many clients as the configuration says."""
    if shares is None:
        return devices
    if len(shares) != len(devices):
        raise ConfigError(
            f"fleet.shares has {len(shares)} numbers; the fleet has {len(devices)} devices: "
            f"{', '.join(device.name for device in devices)}"
        )
    return tuple(replace(device, share=share) for device, share in zip(devices, shares, strict=True))


def named_fleet(name: str) -> FleetKind:
    """The fleet of this name, built in or another package's."""
    kind = plugins.find("fleet", "fleet.name", name, FLEETS)
    if not isinstance(kind, FleetKind):
        raise ConfigError(f"the fleet {name!r} is {kind!r}; it should be a heroes.fleet.FleetKind")
    return kind
