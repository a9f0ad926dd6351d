"""Data sets of the Hugging Face hub by name: `hf:NAME`, or `hf:NAME:SUBSET`; images, texts or tables.

The package `datasets` downloads and keeps them. `data.source` is a folder that its `save_to_disk` wrote, for
machines without a network.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
import torch
from torch import Tensor

from heroes.data import table, text
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.image_cache import require_pillow, shrunk
from heroes.data.image_folder import MEAN, STD
from heroes.data.images import ImageTransform
from heroes.data.labelled import labelled
from heroes.data.table_files import Table, cells_of
from heroes.errors import DataError, said

PREFIX = "hf:"
REACH = 5.0  # seconds in which the hub answers, or is not there
_FOR_TESTING = ("test", "validation", "valid", "val")


def load(name: str, options: DataOptions) -> Dataset:
    """A data set of the hub: images or texts with labels, or a table with a column to predict."""
    splits = _opened(name, options.source)
    if "train" not in splits:
        raise DataError(f"{name} has the parts {', '.join(splits)}, and no 'train' to learn from")
    kinds = {column: type(feature).__name__ for column, feature in splits["train"].features.items()}
    target = options.target or _label(name, kinds)
    options = replace(options, target=target)
    held = next((part for part in _FOR_TESTING if _has_labels(splits, part, target)), None)
    parts = [splits["train"], *([] if held is None else [splits[held]])]
    pictures = next((column for column, kind in kinds.items() if kind == "Image"), None)
    left_out = [column for column, kind in kinds.items() if kind not in ("Value", "ClassLabel")]
    both = [_table(name, part, left_out) for part in parts]
    pair = both[0], both[1] if held is not None else None
    if pictures is not None:
        return _images(pair, parts, pictures, options)
    return text.of_tables(pair, options) if options.text in kinds else table.of_tables(pair, options)


def _opened(name: str, source: Path | None) -> Any:
    """The parts of a data set by name, from the hub, its cache or a folder."""
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"data.name is {name!r}: it needs the package datasets; pip install 'heroes-fl[hf]'"
        ) from None
    hub, _, subset = name.removeprefix(PREFIX).partition(":")
    try:
        if source is not None:
            found = datasets.load_from_disk(str(source.expanduser()))
        else:
            with _at_once(datasets.config):
                found = datasets.load_dataset(hub, subset or None)
    except Exception as error:  # the network, the hub and its files can fail in any way
        wanted = ", ".join(repr(part) for part in (hub, subset) if part)
        raise DataError(
            f"{name} cannot be had ({said(error)}). Without a network: elsewhere say `from datasets import "
            f"load_dataset; load_dataset({wanted}).save_to_disk('DIR')` in Python, bring the folder DIR here "
            "and set data.source to it"
        ) from None
    return found if isinstance(found, dict) else {"train": found}


@contextmanager
def _at_once(config: Any) -> Iterator[None]:
    """Without a network only the cache is looked into; the hub would be tried for minutes."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or _reached(constants.ENDPOINT):
        yield
        return
    constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = False


def _reached(endpoint: str) -> bool:
    """Whether a server answers; behind a proxy nobody can tell."""
    hub = urlsplit(endpoint)
    try:
        socket.create_connection((hub.hostname or "", hub.port or 443), timeout=REACH).close()
    except OSError:
        return bool(getproxies())
    return True


def _label(name: str, kinds: dict[str, str]) -> str:
    """The column to predict where none is named: `label`, or the only one of classes."""
    classes = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    if "label" in kinds or len(classes) == 1:
        return "label" if "label" in kinds else classes[0]
    raise DataError(f"data.target is not set: name the column of {name} to predict, from {', '.join(kinds)}")


def _has_labels(splits: Any, part: str, target: str) -> bool:
    """Whether a part can be tested on; some have -1 for every label."""
    if part not in splits or target not in splits[part].features:
        return False
    first = splits[part][target][:1]
    return bool(first) and first[0] not in (-1, None)


def _table(name: str, part: Any, left_out: Sequence[str]) -> Table:
    """The words and numbers of a part; classes are told by their names."""
    plain = part.remove_columns([column for column in left_out if column in part.features])
    path = Path(f"{name} {part.split or ''}".strip())
    columns = {
        column: cells_of(_words(plain[column], feature), path, column)
        for column, feature in plain.features.items()
    }
    return Table(path, columns, range(1, len(part) + 1), "row")


def _words(values: Sequence[Any], feature: Any) -> Sequence[Any]:
    """Classes by their names; -1 is none."""
    names = getattr(feature, "names", None)
    if names is None:
        return values
    return [None if value is None or value < 0 else str(names[value]) for value in values]


def _images(
    both: tuple[Table, Table | None], parts: Sequence[Any], column: str, options: DataOptions
) -> Dataset:
    """Images at one size; which image belongs to a row is the number of the row."""
    require_pillow()
    rows = labelled(both, options, str(options.target))
    of_part = {table.path: part for table, part in zip(filter(None, both), parts, strict=True)}
    data = rows.dataset(partial(_pixels, of_part, column, options.size), ImageTransform(MEAN, STD))
    varied = ImageTransform(MEAN, STD, flip=options.augment)
    return replace(data, train=replace(data.train, transform=varied))


def _pixels(parts: dict[Path, Any], column: str, size: int, found: Table) -> Tensor:
    part = parts[found.path]
    images = np.empty((len(found), 3, size, size), dtype=np.uint8)
    for place, line in enumerate(found.lines):
        images[place] = shrunk(part[int(line) - 1][column], size)
    return torch.from_numpy(images)
