"""The tutorial notebook: it runs from top to bottom, and what it shows is small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "tutorial.ipynb"
LARGEST_FILE, LARGEST_TEXT = 150_000, 8_000  # characters


def texts(notebook: Any) -> list[str]:
    """What the cells show, pictures left out."""
    shown = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error", output
            for kind, text in {"text": output.get("text", ""), **output.get("data", {})}.items():
                if not kind.startswith("image/"):
                    shown.append("".join(text) if isinstance(text, list) else str(text))
    return shown


def test_the_notebook_in_the_repository_is_small() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < LARGEST_FILE
    shown = texts(json.loads(text))
    assert shown, "readers on the web see what it shows"
    assert max(map(len, shown)) < LARGEST_TEXT


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "\n".join(texts(notebook))
    for wanted in ("round 40 of 40", "digits, heroes, seed 0", "Speed-up of heroes", "board-1"):
        assert wanted in shown, wanted
    assert max(map(len, texts(notebook))) < LARGEST_TEXT
    assert (tmp_path / "notebook-runs" / "phone.pt").exists()
