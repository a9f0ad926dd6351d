"""Writes pages and pictures from what is kept: whole pages, and marked places in pages written by hand."""

from __future__ import annotations

from pathlib import Path

from heroes.errors import RunFolderError
from heroes.report import write_whole
from heroes.studies.kept import Store
from heroes.studies.telling.evidence import Evidence
from heroes.studies.telling.front import field, lead
from heroes.studies.telling.markdown import put_in
from heroes.studies.telling.pictures import drawings, write_drawings
from heroes.studies.telling.results_page import results_page
from heroes.studies.telling.study_page import study_page

RESULTS, STUDY, SCHEMES, README = "docs/results.md", "docs/study.md", "docs/schemes.md", "README.md"
PICTURES = "docs/pictures"


def pages(evidence: Evidence, there: Path) -> dict[str, str]:
    """The text of every page, by its path; marked places are filled in the pages that are in this folder."""
    texts = {RESULTS: results_page(evidence), STUDY: study_page(evidence)}
    for path, name, lines in ((README, "results", lead(evidence)), (SCHEMES, "field", list(field(evidence)))):
        if (there / path).is_file():
            texts[path] = put_in((there / path).read_text(encoding="utf-8"), name, lines, str(there / path))
    return texts


def write_pages(store: Store, out: Path, scale: str = "small") -> list[Path]:
    """Write what has changed below this folder; say which files. Nothing is written if something is wrong."""
    if not store.runs:
        raise RunFolderError(
            f"no result is kept in {str(store.folder)!r}; heroes study and heroes reproduce make them"
        )
    evidence = Evidence(store, scale)
    texts = pages(evidence, out)
    written = write_drawings(drawings(evidence), out / PICTURES)
    for name, text in texts.items():
        path = out / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            written.append(write_whole(path, text))
    return written
