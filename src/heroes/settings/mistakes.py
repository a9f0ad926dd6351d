"""Wrong settings in sentences: the key, its value, and what would be right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from heroes.errors import did_you_mean

_FIRST = "it should be "
_PAIRS = ("fleet.upload", "fleet.download")


def sentences(
    details: Sequence[ErrorDetails], tree: Mapping[str, Any], known: Sequence[str], sections: Sequence[str]
) -> list[str]:
    """For every wrong key what was wrong, with the value, and what would be right.

    Args:
        details: what pydantic found wrong with `tree`.
        known: all keys, with dots.
        sections: the keys at the top.
    """
    wanted: dict[str, list[str]] = {}
    for detail in details:
        section, *inner = [*map(str, detail["loc"])] or [""]  # nowhere: a key that is no proper text
        name = ".".join([section, *inner[:1]])
        wanted.setdefault(name, []).append(_wanted(detail, name, known, sections))
    return [
        _told(name, tree, known, sections)
        + ", or ".join([first, *(one.removeprefix(_FIRST) for one in others)])
        for name, (first, *others) in wanted.items()
    ]


def _told(name: str, tree: Mapping[str, Any], known: Sequence[str], sections: Sequence[str]) -> str:
    """The beginning of a sentence: the key, and its value if it has one. Keys in conflict need none."""
    if not name:
        return ""
    section, _, key = name.partition(".")
    if name not in known and name in sections and isinstance(tree.get(name), Mapping):
        return f"{name}: "
    quoted = "." in name and name in tree  # a key with a dot in it is no key in a section
    if name in sections and name not in tree:
        return f"{name} is missing: "
    if quoted or section not in tree or (name not in known and section not in known and name not in sections):
        return f"unknown key {name!r}: "
    value = tree[section]
    if key:
        value = value.get(key, "missing") if isinstance(value, Mapping) else getattr(value, key)
    return f"{name} is {list(value) if isinstance(value, tuple) else value!r}: "


def _wanted(detail: ErrorDetails, name: str, known: Sequence[str], sections: Sequence[str]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        section, _, key = name.partition(".")
        if key and len(detail["loc"]) == 1 and name in known:
            return f"write [{section}], and below it {key} = {json.dumps(detail['input'], default=str)}"
        inside = [each.removeprefix(f"{section}.") for each in known if each.startswith(f"{section}.")]
        return did_you_mean(key, inside) if key else did_you_mean(section, sections)
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "literal_error":
        return _one_of(str(detail["input"]), detail["ctx"]["expected"])
    if name in _PAIRS and kind in ("missing", "too_long", "tuple_type"):
        return f"{_FIRST}two numbers, [low, high]"
    if kind == "missing":
        return "there is no default for it"
    if kind == "tuple_type":
        given = detail["input"]
        return f"{_FIRST}a list" + (
            f", such as {json.dumps([given])}" if isinstance(given, str | int) else ""
        )
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"{_FIRST}a section, [{name}] with keys of its own"
    return detail["msg"].replace("Input should be", "it should be", 1)


def _one_of(given: str, expected: str) -> str:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if all(choice.isdigit() for choice in choices):
        return f"{_FIRST}one of {', '.join(choices)}"
    return did_you_mean(given, choices) if len(choices) > 1 else f"{_FIRST}{choices[0]!r}"
