"""Texts with labels, read as bytes: 1 to 256, and 0 before a text that is shorter than the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from heroes.data.datasets import DataOptions, Dataset
from heroes.data.labelled import labelled
from heroes.data.table_files import Table, tables
from heroes.data.targets import word
from heroes.errors import DataError


@dataclass(frozen=True)
class Tokens:
    """Stored bytes as tokens."""

    vocabulary: ClassVar[int] = 257

    def __call__(self, stored: Tensor, rng: np.random.Generator | None) -> Tensor:
        return stored.long()


def load(options: DataOptions) -> Dataset:
    """Texts with labels from a CSV, JSON lines or Parquet file, read as bytes; see docs/data.md."""
    return of_tables(tables(options, "text"), options)


def of_tables(both: tuple[Table, Table | None], options: DataOptions) -> Dataset:
    """The data set of a table of texts to learn from, and perhaps one to test on."""
    rows = labelled(both, options, options.target or "label")
    return rows.dataset(partial(tokens, column=options.text, length=options.length), Tokens())


def tokens(table: Table, column: str, length: int) -> Tensor:
    """The first bytes of every text as (rows, length), at the end of their row."""
    found = np.zeros((len(table), length), dtype=np.int16)
    for row, cell in enumerate(table.column(column, "data.text")):
        raw = np.frombuffer(word(cell).encode(errors="replace")[:length], dtype=np.uint8)
        if not len(raw):
            raise DataError(f"{table.at(row)}: {column!r} is empty; write something, or take the row out")
        found[row, length - len(raw) :] = raw.astype(np.int16) + 1
    return torch.from_numpy(found)
