"""What is to be learnt of a row: the class that a word stands for, or a number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heroes.data.table_files import Cell, Table
from heroes.errors import DataError
from heroes.messages import Floats

_KEY = "data.target"
_MANY = 100  # classes; if there are more, and in one row of two another, they are numbers


@dataclass(frozen=True)
class Classes:
    """Class names in order: a target is the place of its name."""

    names: tuple[str, ...]

    @staticmethod
    def of(table: Table, column: str) -> Classes:
        """The classes that a column has, numbers by their size and words by the alphabet."""
        names = set(_labels(table, column))
        if len(names) > max(_MANY, len(table) / 2):
            raise DataError(
                f"{_KEY} is {column!r}, which has {len(names)} different values in {len(table)} rows: for "
                "numbers to estimate use objective.name = 'mean_squared_error'"
            )
        if len(names) == 1:
            raise DataError(
                f"{_KEY} is {column!r}, which is {names.pop()!r} in every row; there is nothing to learn"
            )
        return Classes(tuple(sorted(names, key=_rank)))

    def found(self, table: Table, column: str) -> Tensor:
        """The class of every row."""
        places = {name: place for place, name in enumerate(self.names)}
        labels = _labels(table, column)
        for row, label in enumerate(labels):
            if label not in places:
                shown = ", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else "")
                raise DataError(f"{table.at(row)}: the label {label!r} is not in the training data ({shown})")
        return torch.tensor([places[label] for label in labels])


@dataclass(frozen=True)
class Numbers:
    """Targets to estimate: standardised by the training examples' mean and standard deviation."""

    mean: float
    deviation: float

    @staticmethod
    def of(table: Table, column: str) -> Numbers:
        return Numbers(*standard(_numbers(table, column)))

    def found(self, table: Table, column: str) -> Tensor:
        """The number of every row, in standard deviations from the mean."""
        values = (_numbers(table, column) - self.mean) / self.deviation
        return torch.from_numpy(values.astype(np.float32))


def standard(values: Floats) -> tuple[float, float]:
    """The mean and the standard deviation, or 1 where all values are the same.

    >>> standard(np.array([1.0, 3.0])), standard(np.array([5.0, 5.0]))
    ((2.0, 1.0), (5.0, 1.0))
    """
    return float(values.mean()), float(values.std()) or 1.0


def number(cell: Cell) -> float | None:
    """The finite number that a cell holds; None if it holds something else.

    >>> number("1e3"), number("12 kg"), number("nan")
    (1000.0, None, None)
    """
    try:
        value = math.nan if cell is None else float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def word(cell: Cell) -> str:
    """A cell as text; whole numbers have no point.

    >>> word(3.0), word("3.0"), word(None)
    ('3', '3.0', '')
    """
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell)


def _labels(table: Table, column: str) -> list[str]:
    cells = table.column(column, _KEY)
    for row, cell in enumerate(cells):
        if cell is None:
            raise DataError(f"{table.at(row)}: {column!r} is empty; give the row a label, or take it out")
    return [word(cell) for cell in cells]


def _rank(name: str) -> tuple[bool, float, str]:
    value = number(name)
    return value is None, value or 0.0, name


def _numbers(table: Table, column: str) -> Floats:
    cells = table.column(column, _KEY)
    values = [number(cell) for cell in cells]
    for row, value in enumerate(values):
        if value is None:
            raise DataError(f"{table.at(row)}: {column!r} is {word(cells[row])!r}; it should be a number")
    return np.array(values, dtype=np.float64)
