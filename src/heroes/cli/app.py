"""The program itself, and how errors become one sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import click
import typer

from heroes import __version__
from heroes.cli import launch
from heroes.cli.console import err_console, say_error
from heroes.cli.helping import PlainGroup
from heroes.cli.start import INTERRUPTED
from heroes.errors import ConfigError, HeroesError

app = typer.Typer(
    name="heroes",
    help="Federated learning on heterogeneous edge devices.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=PlainGroup,
    suggest_commands=not hasattr(click.exceptions, "NoSuchCommand"),  # click may do it as well
)


def run() -> NoReturn:
    """Run the command that the arguments name."""
    try:
        if launch.rank() > 0:
            _follow()
        _refuse_empty(sys.argv[1:])
        code = app(standalone_mode=False) or 0
        if code == INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.exit(code)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        err_console.print(str(error) or "interrupted", markup=False, soft_wrap=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        say_error(f"cannot read or write{where}: {error.strerror}")
        sys.exit(2)
    except HeroesError as error:
        say_error(str(error))
        sys.exit(error.exit_code)


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Raise an error for an argument without a letter: it would mean the folder one is in, or nothing."""
    for before, given in zip(("heroes", *arguments), arguments, strict=False):
        if given == "" or (given.startswith("--") and given.endswith("=")):
            after = given.rstrip("=") or before
            raise ConfigError(f"there is nothing after {after!r}; perhaps a variable of the shell is not set")


def _follow() -> NoReturn:
    """Run the command line in any process but the first under mpiexec; the first reports errors."""
    err_console.quiet = True
    try:
        app(standalone_mode=False)
    except (click.exceptions.Abort, click.ClickException, KeyboardInterrupt):
        sys.exit(0)  # any other code would end the first before it can say it
    except HeroesError as error:
        sys.exit(0 if error.exit_code == HeroesError.exit_code else error.exit_code)
    sys.exit(0)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"heroes {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass
