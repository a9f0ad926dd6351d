"""Tables as LaTeX, with the rules of the package booktabs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heroes.errors import printable
from heroes.report.tables import Table

# brackets and stars mean something after the \\ that ends a row
_WRITTEN = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "[": "{[}",
    "*": "{*}",
    **{each: f"\\{each}" for each in "&%$#_{}"},
}
_ESCAPES = str.maketrans(_WRITTEN)


def escaped(text: str) -> str:
    r"""Text from anywhere as LaTeX shows it.

    >>> print(escaped("100 % of fed_avg & {x}"))
    100 \% of fed\_avg \& \{x\}
    """
    return printable(text).translate(_ESCAPES)


def document(tables: Iterable[Table], notes: Iterable[str] = ()) -> str:
    """Several tables, to be put into a document that uses booktabs; notes are comments."""
    head = [
        "% heroes compare --latex; it needs \\usepackage{booktabs}",
        *(f"% {printable(n)}" for n in notes),
    ]
    return "\n".join(head) + "\n\n" + "\n\n".join(map(latex, tables)) + "\n"


def latex(table: Table) -> str:
    """A table: the first column to the left, the others to the right, the note below."""
    note = [rf"  \par\smallskip{{\footnotesize {escaped(table.note)}}}"] if table.note else []
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escaped(table.title)}}}",
        rf"  \begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"    \toprule",
        _row(table.header),
        r"    \midrule",
        *map(_row, table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        *note,
        r"\end{table}",
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"    {' & '.join(map(escaped, cells))} \\\\"
