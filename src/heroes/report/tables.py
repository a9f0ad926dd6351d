"""A table of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from heroes.errors import printable

_LONGEST_CELL = 200  # characters


@dataclass(frozen=True)
class Table:
    """A title, a header, rows whose first cell names them, and a note below."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def lines(self) -> list[str]:
        """The table as lines of text: the first column is aligned left, the others right.

        >>> print("\\n".join(Table("Waiting", ("", "s"), (("heroes", "0.5"), ("fedavg", "11.0"))).lines()))
        Waiting
                   s
        heroes   0.5
        fedavg  11.0
        """
        table = [[printable(cell, _LONGEST_CELL) for cell in row] for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        body = [
            "  ".join(
                text.rjust(width) if place else text.ljust(width)
                for place, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        return [
            printable(self.title),
            *(line.rstrip() for line in body),
            *([printable(self.note)] if self.note else []),
        ]

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        title, note = (escape(printable(text)) for text in (self.title, self.note))
        rows = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in self.rows)
        caption = f'<caption style="text-align: left; white-space: nowrap"><b>{title}</b></caption>'
        return f"<table>{caption}<tr>{_cells(self.header, 'th')}</tr>{rows}</table>" + (
            f"<p>{note}</p>" if note else ""
        )


def _cells(texts: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(printable(text, _LONGEST_CELL))}</{tag}>" for text in texts)


def pairs_html(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and texts as a small HTML table, for notebooks.

    >>> pairs_html([("rounds", "<3>")])
    '<table><tr><th>rounds</th><td>&lt;3&gt;</td></tr></table>'
    """
    cells = [[escape(printable(text, _LONGEST_CELL)) for text in pair] for pair in pairs]
    return f"<table>{''.join(f'<tr><th>{name}</th><td>{text}</td></tr>' for name, text in cells)}</table>"
