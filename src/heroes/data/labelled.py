"""Rows with a column to predict, in two parts: to learn from, and to test on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from heroes import seeds
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.examples import Examples, Transform
from heroes.data.table_files import Table
from heroes.data.targets import Classes, Numbers, word
from heroes.data.validation import apart
from heroes.messages import Integers


@dataclass(frozen=True)
class Labelled:
    """Both tables, what is to be predicted of their rows, and who made those to learn from."""

    train: Table
    test: Table
    scale: Classes | Numbers
    column: str
    owners: Integers | None = None
    owner_names: tuple[str, ...] = ()

    def dataset(
        self, inputs: Callable[[Table], Tensor], transform: Transform | None = None, **about: Any
    ) -> Dataset:
        """The data set, given what makes inputs of a table."""
        train, test = (
            Examples(inputs(table), self.scale.found(table, self.column), transform)
            for table in (self.train, self.test)
        )
        classes = self.scale.names if isinstance(self.scale, Classes) else ()
        known = {**about, "target": self.scale}
        return Dataset(train, test, self.owners, classes, self.owner_names, about=known)


def labelled(tables: tuple[Table, Table | None], options: DataOptions, column: str) -> Labelled:
    """Tables with what is to be predicted: a class, or a number if the options say so.

    Without a table to test on, a share of the rows is: the same every time, of every class alike, or the last
    of every owner.
    """
    train, test = tables
    aim = Classes.of(train, column) if options.targets == "classes" else None
    owners, names = _owners(train, options.owner)
    if test is None:
        kind = _kinds(train, aim, column) if owners is None else owners
        rng = seeds.stream(0, "data", "test share") if owners is None else None
        rows, held = apart(kind, options.test_share, rng, "data.test_share")
        train, test = train.only(rows), train.only(held)
        owners = None if owners is None else owners[rows]
    return Labelled(train, test, aim or Numbers.of(train, column), column, owners, names)


def _kinds(table: Table, aim: Classes | None, column: str) -> Integers:
    """What must be as frequent in both parts."""
    return np.zeros(len(table), dtype=np.int64) if aim is None else aim.found(table, column).numpy()


def _owners(table: Table, column: str | None) -> tuple[Integers | None, tuple[str, ...]]:
    """Who made each row, as numbers and as names, if a column says so."""
    if column is None:
        return None, ()
    cells = table.column(column, "data.owner")
    names, owners = np.unique([word(cell) for cell in cells], return_inverse=True)
    return owners.astype(np.int64), tuple(map(str, names))
