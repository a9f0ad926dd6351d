"""Tables in files: CSV and JSON lines by the standard library, Parquet by pyarrow.

What is wrong with a file is said with its name and the line or row.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heroes.data.datasets import DataOptions
from heroes.errors import DataError, did_you_mean, said
from heroes.messages import Integers

Cell = str | float | None
"""A word, a number, or nothing."""
_SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class Table:
    """The cells of a file by column, and the line (or row) that each row of it is in."""

    path: Path
    columns: Mapping[str, Sequence[Cell]]
    lines: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def at(self, row: int) -> str:
        """Where a row is, for a message."""
        return f"{self.unit} {self.lines[row]} of {str(self.path)!r}"

    def only(self, rows: Integers) -> Table:
        """The table with these rows only."""
        kept = rows.tolist()
        columns = {name: [cells[row] for row in kept] for name, cells in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[row] for row in kept])

    def column(self, name: str, key: str) -> Sequence[Cell]:
        """The column that a setting names."""
        if name not in self.columns:
            raise DataError(
                f"{key} is {name!r}, but {str(self.path)!r} has no such column: "
                f"{did_you_mean(name, self.columns)}"
            )
        return self.columns[name]


def tables(options: DataOptions, name: str) -> tuple[Table, Table | None]:
    """The table to learn from, and the one to test on if there is one.

    `data.source` is a file, or a folder with a file `train` and perhaps a file `test`; `data.test` is a file.
    """
    kinds = f"a {', '.join(READERS)} file, or a folder with train.csv and test.csv, say"
    if options.source is None:
        raise DataError(f"data.name is {name!r}, but data.source is not set: it should be {kinds}")
    source, test = options.source.expanduser(), options.test
    if source.is_dir():
        files = _inside(source, "train")
        if len(files) != 1:
            raise DataError(f"{str(source)!r} has {len(files)} files train.*: data.source should be {kinds}")
        test = test or next(iter(_inside(source, "test")), None)
        source = files[0]
    if not source.exists():
        raise DataError(f"there is no file {str(source)!r}: data.source should be {kinds}")
    train = read(source)
    return train, None if test is None else _alike(read(test.expanduser()), train)


def _inside(folder: Path, name: str) -> list[Path]:
    return [path for ending in READERS if (path := folder / f"{name}{ending}").is_file()]


def _alike(test: Table, train: Table) -> Table:
    if missing := [name for name in train.columns if name not in test.columns]:
        raise DataError(f"{str(test.path)!r} lacks the column {missing[0]!r} that {str(train.path)!r} has")
    return test


def read(path: Path) -> Table:
    """The table in a file, by the ending of its name."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{str(path)!r} should end in {', '.join(READERS)}")
    try:
        table = reader(path)
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not text in UTF-8 (byte {error.start}); convert it") from None
    if not table.columns:
        raise DataError(f"{str(path)!r} is empty; its first line should name the columns")
    if not len(table):
        raise DataError(f"{str(path)!r} has no rows, only the columns {', '.join(table.columns)}")
    return table


def _csv(path: Path) -> Table:
    """Comma-separated, or with semicolons, tabs or bars, whichever the first line has most of."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        head = file.readline()
        file.seek(0)
        reader = csv.reader(file, delimiter=max(_SEPARATORS, key=head.count), strict=True)
        try:
            names = _names(path, next(reader, []))
            rows, lines = [], []
            for row in reader:
                if row:
                    rows.append(_whole(path, row, len(names), reader.line_num))
                    lines.append(reader.line_num)
        except csv.Error as error:
            raise DataError(f"line {reader.line_num} of {str(path)!r} is not CSV: {error}") from None
    cells = [[cell.strip() or None for cell in column] for column in zip(*rows, strict=True)]
    return Table(path, dict(zip(names, cells, strict=False)) if rows else dict.fromkeys(names, ()), lines)


def _names(path: Path, row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    for name in names:
        if not name or names.count(name) > 1:
            raise DataError(
                f"{str(path)!r} has {names.count(name)} columns called {name!r}; each needs a name of its own"
            )
    return names


def _whole(path: Path, row: list[str], columns: int, line: int) -> list[str]:
    if len(row) != columns:
        raise DataError(
            f"line {line} of {str(path)!r} has {len(row)} cells, but there are {columns} columns; a cell "
            'that has a separator in it goes into "quotes"'
        )
    return row


def _json_lines(path: Path) -> Table:
    """An object on every line."""
    rows, lines = [], []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                rows.append(_object(path, line, number))
                lines.append(number)
    names = list(dict.fromkeys(name for row in rows for name in row))
    placed = list(zip(rows, lines, strict=True))
    columns = {
        name: [cell_of(row.get(name), path, f"line {line}", name) for row, line in placed] for name in names
    }
    return Table(path, columns, lines)


def _object(path: Path, line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number} of {str(path)!r} is not JSON: {said(error)}") from None
    if not isinstance(found, dict):
        raise DataError(f"line {number} of {str(path)!r} is a {type(found).__name__}; it should be an object")
    return found


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{str(path)!r}: reading Parquet needs pyarrow; pip install 'heroes-fl[tables]'"
        ) from None
    try:
        found = parquet.read_table(path).to_pydict()
    except Exception as error:  # a broken file can break the reader in any way
        raise DataError(f"{str(path)!r} cannot be read as Parquet: {said(error)}") from None
    columns = {name: cells_of(values, path, name) for name, values in found.items()}
    count = len(next(iter(columns.values()), ()))
    return Table(path, columns, range(1, count + 1), "row")


def cells_of(values: Iterable[Any], path: Path, name: str) -> list[Cell]:
    """A column of a file that has more than text."""
    return [cell_of(value, path, f"row {row}", name) for row, value in enumerate(values, 1)]


def cell_of(value: Any, path: Path, where: str, name: str) -> Cell:
    """A value of a file that has more than text, as a cell."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, (bool, int, float)):
            return float(value)
    except OverflowError:
        raise DataError(f"{where} of {str(path)!r}: the number in column {name!r} is too large") from None
    raise DataError(
        f"{where} of {str(path)!r} has a {type(value).__name__} in column {name!r}; it should be a number or "
        "words (data.ignore leaves a column out)"
    )


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
