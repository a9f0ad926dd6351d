"""TOML from outside, read within bounds that every configuration keeps."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

LARGEST = 1 << 15  # bytes; a longer text that is made to be slow would keep Python's reader busy for minutes
_DEEPEST = 8


def read(path: Path) -> dict[str, Any]:
    """The tree in a file; ValueError says why there is none, OSError why it cannot be opened."""
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise ValueError(f"it is longer than {LARGEST} bytes, which no configuration needs")
    return loads(raw.decode("utf-8-sig").replace("\r\n", "\n"))


def loads(text: str) -> dict[str, Any]:
    """The tree in a text, at most eight levels deep, with 64-bit whole numbers; else a ValueError.

    >>> loads("a.b = 1")
    {'a': {'b': 1}}
    """
    if len(text) > LARGEST:
        raise ValueError(f"it is longer than {LARGEST} characters, which no configuration needs")
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[Any] = [tree]
    for _ in range(_DEEPEST + 1):
        if any(type(value) is int and not -(2**63) <= value < 2**63 for value in level):
            raise ValueError("a whole number in it does not fit into 64 bits")
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise ValueError(f"it is nested too deeply; {_DEEPEST} levels are more than enough")
    return tree


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
