"""Prints docs/config.md: every configuration key, from the code."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from heroes.settings.config import keys
from heroes.strategies.registry import BUILT_IN, DEFAULT

Key = tuple[str, Any, str]


def page() -> str:
    lines = [
        "# Configuration",
        "",
        "Every key, made from the code by `make docs`. A TOML file says what it starts from and the keys "
        "that differ:",
        "",
        "```toml",
        'base = "digits"                # the recipe of an experiment, see heroes list',
        'experiment = "night shift"     # any name; without base it must be that of a recipe',
        "[training]",
        "momentum = 0.5",
        "```",
        "",
        "`--set section.key=value` changes one on the command line; the word `none` unsets a key that may "
        "be unset.",
        "The resolved configuration is written to `config.toml` in every run folder.",
    ]
    lines += table(keys())
    for name, strategy in BUILT_IN.items():
        if name == DEFAULT:
            continue
        lines += [
            "",
            f'### [strategy] with name = "{name}"',
            *rows(key for key in keys(strategy) if key[0].startswith("strategy.")),
        ]
    return "\n".join(lines) + "\n"


def table(entries: Iterable[Key]) -> list[str]:
    lines: list[str] = []
    for section, inside in groupby(
        entries, lambda key: key[0].partition(".")[0] if "." in key[0] else "top level"
    ):
        title = section if section == "top level" else f"[{section}]"
        lines += ["", f"## {title}", *rows(inside)]
    return lines


def rows(entries: Iterable[Key]) -> list[str]:
    shown = [
        (key, "none" if default is None else default, text.replace("|", "/"))
        for key, default, text in entries
    ]
    return [
        "",
        "| key | default | meaning |",
        "|---|---|---|",
        *(f"| `{key}` | `{default}` | {text} |" for key, default, text in shown),
    ]


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201
