"""The documentation: links lead somewhere, and public functions name their arguments."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import heroes
from heroes import contracts
from heroes.settings import recipes

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page as forges and MyST make anchors of them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    for target, anchor in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        found = page if not target else (page.parent / target).resolve()
        if not found.exists():
            yield f"{target}: there is no such file"
        elif anchor and anchor not in anchors(found):
            yield f"{target}#{anchor}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What it is\n[a](#what-it-is) [b](gone.md) [c](page.md#not-it) [d](https://e.org/x)\n")
    assert list(broken(page)) == [
        "gone.md: there is no such file",
        "page.md#not-it: there is no such heading",
    ]


def test_every_page_is_in_the_site() -> None:
    """A page that no table of contents names would fail `make site`, which is not part of `make test`."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^[a-z][\w/-]*$", index, re.MULTILINE)) | {"index"}
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.rst")]
    there = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in pages}
    assert there == named


def public() -> Iterator[tuple[str, Any, str]]:
    """Every public function by name, and the text in which its arguments should be named."""
    for name in heroes.__all__:
        if inspect.isfunction(found := getattr(heroes, name)):
            yield name, found, found.__doc__ or ""
    yield from methods(heroes.Run, "model", "export")
    yield from methods(heroes.Config, "changed", "with_strategy", "differs")
    for name, function in of_module(recipes, inspect.isfunction):
        yield name, function, f"{function.__doc__} {recipes.__doc__}"
    for _, found in of_module(contracts, inspect.isclass):
        yield from methods(found, *(n for n in vars(found) if not n.startswith("_")))


def of_module(module: ModuleType, kind: Any) -> list[tuple[str, Any]]:
    found = inspect.getmembers(module, kind)
    return [(n, each) for n, each in found if each.__module__ == module.__name__ and not n.startswith("_")]


def methods(kind: type, *names: str) -> Iterator[tuple[str, Any, str]]:
    for name in names:
        if inspect.isfunction(method := getattr(kind, name, None)):
            yield f"{kind.__name__}.{name}", method, method.__doc__ or ""


def unnamed(function: Any, text: str) -> list[str]:
    """The arguments of which the text says nothing."""
    given = [name for name in inspect.signature(function).parameters if name != "self"]
    return [name for name in given if not re.search(rf"(^\s*{name}: |`{name}`)", text, re.MULTILINE)]


def test_public_functions_name_their_arguments() -> None:
    found = {name: left for name, function, text in public() if (left := unnamed(function, text))}
    assert found == {}


def test_an_unnamed_argument_is_found() -> None:
    def function(one: int, two: int, three: int) -> None:
        """Takes `one`.

        Args:
            two: another.
        """

    assert unnamed(function, function.__doc__ or "") == ["three"]
