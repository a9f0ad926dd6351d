"""The data sets by name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from heroes import plugins, seeds
from heroes.data import (
    cifar10,
    cifar100,
    digits,
    fashion_mnist,
    femnist,
    hugging_face,
    image_folder,
    imagenet100,
    mnist,
    shakespeare,
    table,
    text,
)
from heroes.data.datasets import DataOptions, Dataset, Loader
from heroes.data.examples import Examples
from heroes.errors import DataError, HeroesError, said
from heroes.messages import Integers
from heroes.seeds import Seed

DATASETS: dict[str, Loader] = {
    "digits": digits.load,
    "cifar10": cifar10.load,
    "cifar100": cifar100.load,
    "imagenet100": imagenet100.load,
    "shakespeare": shakespeare.load,
    "mnist": mnist.load,
    "fashion_mnist": fashion_mnist.load,
    "femnist": femnist.load,
    "images": image_folder.load,
    "table": table.load,
    "text": text.load,
}


def load(name: str, options: DataOptions | None = None) -> Dataset:
    """A data set.

    Args:
        name: one of `heroes list data`.
        options: where it lies, and how much of it is wanted.
    """
    options = options or DataOptions()
    if name.startswith(hugging_face.PREFIX):
        loader: Loader = partial(hugging_face.load, name)
    else:
        loader = plugins.find("data set", "data.name", name, DATASETS)
    dataset = _loaded(name, loader, options)
    return replace(dataset, test=_limited(dataset.test, options))


def _loaded(name: str, loader: Loader, options: DataOptions) -> Dataset:
    """What a loader gives; one of another package may fail in any way, or give something else."""
    if name in DATASETS or name.startswith(hugging_face.PREFIX):
        return loader(options)
    where = f"the data set {name!r} from the module {plugins.origin(loader)['module']!r}"
    try:
        found = loader(options)
    except HeroesError:
        raise
    except Exception as error:
        raise DataError(f"{where} could not be loaded: {said(error)}") from error
    if not isinstance(found, Dataset):
        raise DataError(f"{where} is a {type(found).__name__}; it should be a heroes.data.Dataset")
    return found


def _limited(test: Examples, options: DataOptions) -> Examples:
    """As many test examples as asked for, drawn by the seed, in their order."""
    chosen = tested(np.arange(len(test)), options.test_limit, options.seed)
    return test if len(chosen) == len(test) else test.only(chosen)


def tested(there: Integers, limit: int | None, seed: Seed) -> Integers:
    """Which of these examples are tested on: all, or as many as the limit, drawn by the seed."""
    if limit is None or limit >= len(there):
        return there
    if limit < 1:
        raise DataError(f"the limit of test examples is {limit}; it must be at least 1")
    return there[np.sort(seeds.stream(seed, "data", "test").choice(len(there), limit, replace=False))]
