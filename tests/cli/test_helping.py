"""Help says what every command, option and argument is for, and has no marks of markup."""

from __future__ import annotations

import click
import pytest
import typer
from typer.testing import CliRunner

from heroes.cli import commands  # noqa: F401 (it defines them)
from heroes.cli.app import app


def every(command: click.Command, *path: str) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    return [path, *(each for name, below in inner.items() for each in every(below, *path, name))]


COMMANDS = every(typer.main.get_command(app))


def helped(*path: str) -> list[str]:
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    return done.output.splitlines()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_everything_is_described_without_backslashes(path: tuple[str, ...]) -> None:
    lines = helped(*path)
    assert not any("\\" in line for line in lines)
    for title in ("Arguments:", "Options:", "Commands:"):
        for line in lines[lines.index(title) + 1 :] if title in lines else ():
            if not line.strip():
                break
            described = line.strip().partition("  ")[2].strip()
            assert described.partition("[")[0] or line.startswith("   "), f"{path}: {line}"


def test_commands_below_the_first_are_there_too() -> None:
    assert ("flower", "init") in COMMANDS
    assert sum("Run folders." in line for line in helped("report")) == 1
    assert any("[default: 0]" in line for line in helped("compare"))


def test_the_nearest_command_is_offered_once() -> None:
    done = CliRunner().invoke(app, ["reprot"])
    assert done.exit_code == 2
    assert done.output.count("Did you mean") == 1
    assert done.output.count("'report'") == 1
