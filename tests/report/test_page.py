"""The report page: read by a parser, and opened in a browser."""

import base64
import html
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import Browser

from heroes.errors import HeroesError, RunFolderError
from heroes.report import RunData, compare, load_run, load_runs, write_page

Make = Callable[..., Path]
VOID = {"meta", "link", "img", "br"}
MEASURE = """<script>
const box = e => {
  const r = e.getBoundingClientRect();
  return [e.tagName, r.width, r.height, e.naturalWidth || 0];
};
const look = frame => {
  const page = frame.contentDocument;
  const every = [...page.querySelectorAll("main img, main table")];
  const all = every.filter(e => !e.closest("details:not([open])"));
  return {boxes: all.map(box), overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth};
};
window.onload = () => {
  document.body.dataset.found = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
};
</script>"""


class Reader(HTMLParser):
    """Collects tags and text, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def test_the_page_holds_tables_figures_settings_and_provenance(rivals: list[RunData], tmp_path: Path) -> None:
    reader = read(write_page(rivals, tmp_path / "deep" / "report.html"))
    text = " ".join(reader.text)
    for wanted in (
        "Seconds of virtual time to reach a target accuracy",
        "best of the others",
        "not reached",
        "What differs",
        "strategy.name",
    ):
        assert wanted in text
    for wanted in ("Run folders", str(rivals[0].path), "Environment", "3.11.7", "data.gamma = 40.0"):
        assert wanted in text
    assert len(reader.all("table")) == len(compare(rivals).tables()) + 3
    images = reader.all("img")
    assert len(images) == 4 + 3 * 3
    for image in images:
        kind, _, content = (image["src"] or "").partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert image["alt"]
        assert ET.fromstring(base64.b64decode(content)).tag.endswith("svg")


def test_the_page_asks_for_nothing_from_outside(rivals: list[RunData], tmp_path: Path) -> None:
    reader = read(write_page(rivals[:1], tmp_path / "report.html"))
    for _, attrs in reader.tags:
        assert not any(name in attrs for name in ("srcset", "onload", "onerror"))
        for name in ("src", "href"):
            assert (attrs.get(name) or "data:").startswith("data:")
    assert not reader.all("script")
    assert not re.search(r"url\(|@import", (tmp_path / "report.html").read_text())


def test_what_files_say_is_escaped(make_run: Make, tmp_path: Path) -> None:
    evil = '<script>alert(1)</script>"&'
    folder = make_run("evil", [0.5, 0.6], experiment=evil, data__name=evil)
    for name in ("config.toml",):
        (folder / name).write_text((folder / name).read_text().replace('name = "heroes"', 'name = "<b>$css"'))
    (folder / "environment.json").write_text(json.dumps({evil: evil}))
    content = (folder / "records.jsonl").read_text().replace("board-1", "<i>").replace('"rounds"', '"<u>"')
    (folder / "records.jsonl").write_text(content)
    reader = read(write_page([load_run(folder)], tmp_path / "report.html"))
    assert not {tag for tag, _ in reader.tags} & {"script", "b", "i", "u"}
    assert evil in " ".join(reader.text)
    assert "<b>$css" in " ".join(reader.text)


def test_a_cut_off_line_is_said_on_the_page(make_run: Make, tmp_path: Path) -> None:
    reader = read(write_page([load_run(make_run("cut", [0.5], tail="{"))], tmp_path / "report.html"))
    assert "cut off and is left out" in " ".join(reader.text)
    assert any("notes" in (attrs.get("class") or "") for attrs in reader.all("ul"))


def test_a_page_that_cannot_be_made_says_why(make_run: Make, tmp_path: Path) -> None:
    runs = load_runs([make_run("a", [0.5]), make_run("b", [0.5], experiment="other")])
    with pytest.raises(HeroesError, match="different experiments"):
        write_page(runs, tmp_path / "report.html")
    with pytest.raises(RunFolderError, match="cannot write"):
        write_page(runs[:1], tmp_path)


def browse(chromium: Browser, report: Path, widths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Open a page in frames as wide as some screens, and measure what it shows."""
    content = html.escape(report.read_text(encoding="utf-8"))
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{content}"></iframe>'
        for width in widths
    )
    around = report.with_name("frames.html")
    around.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{frames}{MEASURE}</body>", encoding="utf-8")
    with chromium.tab() as page:
        page.open(around.as_uri(), 1700, 1000)
        return list(json.loads(page.wait("document.body.dataset.found")))


def test_a_browser_shows_every_figure_and_table_on_a_screen_and_on_a_phone(
    rivals: list[RunData], chromium: Browser, tmp_path: Path
) -> None:
    for found in browse(chromium, write_page(rivals, tmp_path / "report.html"), (1200, 390)):
        tables = [box for box in found["boxes"] if box[0] == "TABLE"]
        figures = [box for box in found["boxes"] if box[0] == "IMG"]
        assert len(tables) == len(compare(rivals).tables()) + 3
        assert len(figures) == 4 + 3
        assert all(box[1] > 100 and box[2] > 30 for box in tables)
        assert all(box[1] > 300 and box[2] > 100 and box[3] > 0 for box in figures), figures
        assert found["overflow"] <= 0, "the page is wider than the screen"


def test_the_page_of_a_regression_speaks_of_its_error(houses: list[RunData], tmp_path: Path) -> None:
    reader = read(write_page(houses, tmp_path / "report.html"))
    text = " ".join(reader.text)
    for wanted in (
        "heroes: houses",
        "2 runs of ours, theirs",
        "Seconds of virtual time to reach a target rmse",
        "mean of the last 3 tests was at or below each target rmse",
        "Speed-up of ours to reach a target rmse",
        "Test rmse of the final model by width",
    ):
        assert wanted in text
    assert "accuracy" not in text.replace("target_accuracy", "")
    assert " %" not in text.split("Inside the runs")[0]
