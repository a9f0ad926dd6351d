"""Help as it was written: some versions of typer put backslashes before brackets, and lose what arguments
are for when click is newer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_type_hints

import click
from typer.core import TyperGroup


class _Formatter(click.HelpFormatter):
    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        plain = [(name, text.replace("\\[", "[")) for name, text in rows]
        super().write_dl(plain, col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class PlainGroup(TyperGroup):
    """Commands that explain themselves in full."""

    context_class = _Context

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None and not isinstance(found, PlainGroup):
            found.context_class = _Context
            vars(found)["format_arguments"] = lambda ctx, formatter: None  # typer writes them among options
            _describe(found)
        return found


def _describe(command: click.Command) -> None:
    """Give arguments the descriptions that the command's function has for them."""
    function = getattr(command.callback, "__wrapped__", command.callback)
    hints = get_type_hints(function, include_extras=True)
    for each in command.params:
        if isinstance(each, click.Argument) and not getattr(each, "help", None):
            (info,) = getattr(hints[each.name], "__metadata__", (None,)) if each.name in hints else (None,)
            each.help = getattr(info, "help", None)
