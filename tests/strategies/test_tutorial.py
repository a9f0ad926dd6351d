"""docs/own-strategy.md: its code is that of the example, and what it shows is what comes out."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "own-strategy.md"


def _lines(code: str) -> str:
    """Code without indentation and empty lines: formatters of pages have their own of both."""
    return "\n".join(line.strip() for line in code.splitlines() if line.strip()) + "\n"


def test_every_piece_of_code_is_in_the_example_in_this_order() -> None:
    example = (ROOT / "examples" / "own_strategy.py").read_text()
    pieces = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(pieces) == 5
    lines = _lines(example)
    places = [lines.find(_lines(piece)) for piece in pieces]
    assert -1 not in places
    assert places == sorted(places)
    assert f"{len(example.splitlines())} lines" in PAGE.read_text()


def test_what_the_prompts_show_is_what_comes_out() -> None:
    # fences are no output
    text = "\n".join("" if line.startswith("```") else line for line in PAGE.read_text().splitlines())
    example = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(example.examples) == 6
    said: list[str] = []
    found = doctest.DocTestRunner().run(example, out=said.append)
    assert found.failed == 0, "".join(said)
