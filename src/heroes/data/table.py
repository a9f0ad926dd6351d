"""A table with a column to predict: numbers standardised, words one-hot, by the training rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from heroes.data.datasets import DataOptions, Dataset
from heroes.data.labelled import labelled
from heroes.data.table_files import Cell, Table, tables
from heroes.data.targets import number, standard, word
from heroes.errors import DataError
from heroes.messages import Floats

_MOST_WORDS = 1000  # one-hot columns of one column
_MOSTLY = 0.5  # a column of which more are numbers is one of numbers


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers. An empty cell is the mean; where training rows have any, a 1 beside it says so."""

    name: str
    mean: float
    deviation: float
    gaps: bool

    def inputs(self, cells: Sequence[Cell], table: Table) -> Floats:
        values = np.array([_number(table, row, cell, self.name) for row, cell in enumerate(cells)])
        empty = np.isnan(values)
        scaled = np.where(empty, 0.0, (values - self.mean) / self.deviation)
        return np.stack([scaled, empty.astype(float)] if self.gaps else [scaled], axis=1)


@dataclass(frozen=True)
class WordColumn:
    """A column of words, one-hot; a word that no training row has is all zeros."""

    name: str
    words: tuple[str, ...]

    def inputs(self, cells: Sequence[Cell], table: Table) -> Floats:
        places = {each: place for place, each in enumerate(self.words)}
        found = np.zeros((len(cells), len(places)))
        for row, cell in enumerate(cells):
            if (place := places.get(word(cell))) is not None:
                found[row, place] = 1.0
        return found


Column = NumberColumn | WordColumn


def load(options: DataOptions) -> Dataset:
    """A CSV, JSON lines or Parquet file with a column to predict, a class or a number; see docs/data.md."""
    return of_tables(tables(options, "table"), options)


def of_tables(both: tuple[Table, Table | None], options: DataOptions) -> Dataset:
    """The data set of a table to learn from, and perhaps one to test on."""
    train, target = both[0], options.target
    if target is None:
        raise DataError(
            f"data.target is not set: name the column to predict; {str(train.path)!r} has "
            f"{', '.join(train.columns)}"
        )
    for key, named in (("data.ignore", options.ignore), ("data.categories", options.categories)):
        for each in named:
            train.column(each, key)
    rows = labelled(both, options, target)
    left_out = {target, options.owner, *options.ignore}
    columns = [_learnt(rows.train, name, options) for name in train.columns if name not in left_out]
    if not columns:
        raise DataError(f"{str(train.path)!r} has no column beside {target!r} to predict it from")
    return rows.dataset(partial(_inputs, columns), columns=columns)


def _inputs(columns: Sequence[Column], table: Table) -> Tensor:
    parts = [each.inputs(table.columns[each.name], table) for each in columns]
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def _learnt(table: Table, name: str, options: DataOptions) -> Column:
    """What the training rows say of a column: numbers if most cells are, unless it is named as words."""
    cells = table.columns[name]
    filled = [cell for cell in cells if cell is not None]
    numeric = [value for cell in filled if (value := number(cell)) is not None]
    if filled and name not in options.categories and len(numeric) > _MOSTLY * len(filled):
        values = np.array([_number(table, row, cell, name) for row, cell in enumerate(cells)])
        known = values[~np.isnan(values)]
        return NumberColumn(name, *standard(known), len(filled) < len(cells))
    words = tuple(sorted({word(cell) for cell in cells}))
    if len(words) > _MOST_WORDS:
        raise DataError(
            f"column {name!r} of {str(table.path)!r} has {len(words)} different words, which is too many for "
            f"categories (at most {_MOST_WORDS}); leave it out by data.ignore = [{name!r}]"
        )
    return WordColumn(name, words)


def _number(table: Table, row: int, cell: Cell, name: str) -> float:
    """The number in a cell, NaN if it is empty."""
    value = number(cell)
    if value is None and cell is not None:
        raise DataError(
            f"{table.at(row)}: {name!r} is {word(cell)!r}, but the column holds numbers; mend it, leave it "
            f"empty, or take the column as words by data.categories = [{name!r}]"
        )
    return np.nan if value is None else value
