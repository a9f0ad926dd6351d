"""Splits Shakespeare's complete works (Project Gutenberg #100 of 1994) into speaking roles, as LEAF does.

A play begins at the line "by William Shakespeare", with its title some lines above. Two blanks and `NAME.
text` begin a speech, four blanks go on with it. One play is not indented. The sonnets come first and are left
out, as is a play with one speaker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BYLINE = "by William Shakespeare"
_FLAT = "THE COMEDY OF ERRORS"  # the play without indentation
_SPEECH, _FLAT_SPEECH = (
    re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)"),
    re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)"),
)
_MORE = "    "
_FEWEST_LINES = 3
_TITLE_ABOVE = range(2, 8)  # how many lines above the byline its title may stand


@dataclass(frozen=True)
class Role:
    """A character of a play and everything it says, whitespace folded into single blanks."""

    name: str
    text: str


def roles(works: str) -> list[Role]:
    """All roles with at least three lines, in the order of their first word."""
    lines = works.splitlines()
    bylines = [i for i, line in enumerate(lines) if BYLINE in line][1:]  # the first is that of the sonnets
    told: dict[str, list[str]] = {}
    for start, end in zip(bylines, [*bylines[1:], len(lines)], strict=True):
        title = _title(lines, start)
        speakers = _speakers(lines[start + 1 : end], title == _FLAT) if title else {}
        if len(speakers) > 1:
            for name, spoken in speakers.items():
                if len(spoken) >= _FEWEST_LINES:
                    told.setdefault(re.sub(r"\W+", "_", f"{title}_{name}"), []).extend(spoken)
    return [Role(name, re.sub(r"\s+", " ", " ".join([*spoken, ""]))) for name, spoken in told.items()]


def _title(lines: list[str], byline: int) -> str | None:
    above = (lines[byline - k].strip() for k in _TITLE_ABOVE if byline >= k)
    return next((line for line in above if line), None)


def _speakers(lines: list[str], flat: bool) -> dict[str, list[str]]:
    """What each character of one play says, line by line. Names differ in case from page to page."""
    speakers: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if match := (_FLAT_SPEECH if flat else _SPEECH).match(line):
            name = match[1].upper()
            current = None if flat and name.startswith("ACT ") else speakers.setdefault(name, [])
            if current is not None:
                current.append(match[2])
        elif current is not None and flat:
            if line.startswith("<"):  # the publisher's notice
                current = None
            else:
                current.append(line)
        elif current is not None and line.startswith(_MORE):
            current.append(line[len(_MORE) :])
    return speakers
