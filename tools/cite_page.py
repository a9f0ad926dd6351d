"""Prints docs/cite.md: how to cite heroes, from CITATION.cff."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CITATION = Path(__file__).parent.parent / "CITATION.cff"
KINDS = {"conference-paper": "inproceedings", "article": "article"}


def page() -> str:
    said = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    return f"""# Cite

{said["message"]}
[CITATION.cff](../CITATION.cff) has it for machines; this is the same in BibTeX, made by `make docs`:

```bibtex
{bibtex(said["preferred-citation"])}
```

Say also which version of heroes you used (`heroes --version`), and give the run folder's `config.toml`: with
it anybody can repeat the run bit for bit.
"""


def bibtex(paper: dict[str, Any]) -> str:
    """An entry, with braces around the title so that its capitals stay."""
    people = paper["authors"]
    fields = {
        "title": f"{{{paper['title']}}}",
        "author": " and ".join(f"{each['family-names']}, {each['given-names']}" for each in people),
        "booktitle": paper["conference"]["name"],
        "year": paper["year"],
    }
    key = f"{people[0]['family-names'].lower()}{paper['year']}heroes"
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{KINDS[paper['type']]}{{{key},", *lines, "}"])


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201
