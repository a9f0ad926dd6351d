"""The documentation: links lead somewhere, and public functions name their arguments."""

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import typer

import heroes
import heroes.cli.commands  # which defines them
from heroes import contracts
from heroes.cli.app import app
from heroes.runs.moment import Moment
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


def commands(text: str) -> Iterator[list[str]]:
    """The words of every `heroes` command in the console blocks of a page."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if (found := re.match(r"(?:mpiexec -n \d+ )?heroes (.*?)( [|>:&]|\s+#|$)", line)) is not None:
                yield shlex.split(found[1])


def misread(words: list[str]) -> str | None:
    """What is wrong with a command, if it cannot be understood."""
    command, rest = typer.main.get_command(app), list(words)
    while isinstance(command, click.Group):
        if not rest or (found := command.commands.get(rest[0])) is None:
            return None if rest == ["--version"] else f"no such command: {' '.join(words)}"
        command, rest = found, rest[1:]
    try:
        command.make_parser(click.Context(command, **command.context_settings)).parse_args(rest)
    except click.UsageError as error:
        return f"{' '.join(words)}: {error.format_message()}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_the_pages_is_one(page: Path) -> None:
    wrong = [misread(words) for words in commands(page.read_text(encoding="utf-8"))]
    assert [each for each in wrong if each is not None] == []


def test_a_wrong_command_is_found() -> None:
    text = "```console\nheroes run digits --speed 3  # fast\nheroes trian x\nheroes list | head\n```\n"
    said = [misread(words) for words in commands(text)]
    assert said[0] is not None
    assert "'--speed'" in said[0]
    assert said[1:] == ["no such command: trian x", None]


WISHES = {
    "export": "--width --max-bytes --max-flops",
    "run": "--own --track",
    "compare": "--latex --until-accuracy",
    "watch": "",
    "resume": "",
    "flower keys": "--systemd --name",
    "flower init": "",
    "flower node": "",
}


def test_the_cookbook_has_every_wish_with_its_command() -> None:
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    said = [" ".join(words) for words in commands(page)]
    for command, options in WISHES.items():
        mine = " ".join(line for line in said if line.startswith(command))
        assert mine, command
        assert [option for option in options.split() if option not in mine] == []
    for heading in ("Stop early", "Count energy", "Look at it in pandas", "Work in a notebook", "Deploy it"):
        assert f"\n## {heading}\n" in page


def public() -> Iterator[tuple[str, Any, str]]:
    """Every public function by name, and the text in which its arguments should be named."""
    for name in heroes.__all__:
        if inspect.isfunction(found := getattr(heroes, name)):
            yield name, found, found.__doc__ or ""
    yield from methods(heroes.Run, "model", "export")
    yield from methods(heroes.Config, "changed", "with_strategy", "differs")
    yield from methods(Moment, "model")
    for module in (heroes.data, heroes.report):  # which the reference has by name
        page = (ROOT / "docs" / "reference" / f"{module.__name__.partition('.')[2]}.rst").read_text()
        for kind, name in re.findall(r"auto(function|class):: (\w+)", page):
            found = getattr(module, name)
            shown = [each for each in vars(found) if not each.startswith("_")] if kind == "class" else []
            yield from methods(found, *shown)
            if kind == "function":
                yield name, found, found.__doc__ or ""
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
