"""Tables and marked places in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heroes.errors import RunFolderError
from heroes.report.tables import Table
from heroes.studies.plans import Plan


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table.

    >>> grid(("", "s"), [("a|b", "1")])
    ['|  | s |', '|---|---|', '| a/b | 1 |']
    """
    lines = [header, *rows]
    shown = ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines]
    return [shown[0], "|" + "---|" * len(header), *shown[1:]]


def percent(share: float, places: int = 0) -> str:
    """A share in percent, as everywhere on the pages.

    >>> percent(0.456), percent(0.7205, 1)
    ('46 %', '72.0 %')
    """
    return f"{100 * share:.{places}f} %"


def less_traffic(times: float, places: int = 0) -> str:
    """What so many times less traffic means.

    >>> less_traffic(4.0), less_traffic(0.8)
    ('75 % less traffic', '25 % more traffic')
    """
    saved = 1 - 1 / times
    return f"{percent(abs(saved), places)} {'less' if saved >= 0 else 'more'} traffic"


def table(shown: Table, title: bool = True) -> list[str]:
    """A table with its title above and its note below."""
    head = [f"**{shown.title}**", ""] if title else []
    note = ["", f"*{shown.note}*"] if shown.note else []
    return [*head, *grid(shown.header, shown.rows), *note, ""]


def apart(plan: Plan) -> Iterator[str]:
    """What a study gives single strategies in all rows."""
    for name, own in plan.settings.items():
        if isinstance(own, dict):
            told = ", ".join(f"`{key} = {value}`" for key, value in own.items())
            yield f"If a row says nothing else, `{name}` has {told} here, whatever its defaults are now."


def page(lines: Sequence[str]) -> str:
    """A whole page: no empty line twice, one at the end."""
    kept = [line for place, line in enumerate(lines) if line or (place and lines[place - 1])]
    return "\n".join(kept).strip("\n") + "\n"


def marks(name: str) -> tuple[str, str]:
    """What stands before and after a part of a page that is made."""
    return (
        f"<!-- {name}: made by make results; what is written here by hand is lost -->",
        f"<!-- end of {name} -->",
    )


def put_in(text: str, name: str, lines: Sequence[str], path: str) -> str:
    """The page with these lines between the marks of this name."""
    begin, end = marks(name)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise RunFolderError(
            f"{path!r} has no place for {name}: it should have the lines {begin!r} and {end!r}"
        )
    return f"{before}{begin}\n{page(lines)}{end}{after}"
