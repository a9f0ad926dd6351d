"""`heroes list` and `heroes show`."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from heroes import plugins
from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.console import note, out_console, print_pairs, print_summary
from heroes.errors import ConfigError, did_you_mean
from heroes.report import Summary, read_config, read_records
from heroes.report.summary import trains_narrower
from heroes.settings.config import keys
from heroes.settings.recipes import EXPERIMENTS
from heroes.settings.sections import EngineConfig
from heroes.strategies import registry


@app.command("list")
def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="Only this: experiments, strategies, models, data, partitions, fleets, trackers, engines "
            "or config."
        ),
    ] = None,
) -> None:
    """Show what there is: experiments, strategies, models, data, fleets, trackers, engines, keys."""
    kinds = _choices()
    if kind is not None and kind not in kinds:
        raise ConfigError(f"there is no list {kind!r}: {did_you_mean(kind, kinds)}")
    for title in [kind] if kind else [name for name in kinds if name != "config"]:
        print_pairs(kinds[title], title)
        out_console.print()
    if kind is None:
        out_console.print("Every configuration key: heroes list config")


def _choices() -> dict[str, list[tuple[str, str]]]:
    from heroes.data import DATASETS, PARTITIONS
    from heroes.fleet import FLEETS
    from heroes.models import MODELS
    from heroes.runs.trackers import TRACKERS

    engines = get_args(EngineConfig.model_fields["name"].annotation)
    return {
        "experiments": _first_lines(EXPERIMENTS),
        "strategies": [(name, registry.summary(kind)) for name, kind in registry.BUILT_IN.items()]
        + plugins.brought("strategy"),
        "models": _first_lines(MODELS) + plugins.brought("model"),
        "data": _first_lines(DATASETS) + plugins.brought("data set"),
        "partitions": _first_lines(PARTITIONS),
        "fleets": [(name, kind.summary) for name, kind in FLEETS.items()] + plugins.brought("fleet"),
        "trackers": _first_lines(TRACKERS) + plugins.brought("tracker"),
        "engines": [(name, _first_line_in(f"heroes.transport.engines.{name}")) for name in engines],
        "config": [
            (key, f"{text} (default: {'none' if default is None else default})")
            for key, default, text in keys()
        ],
    }


def _first_lines(functions: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _first_line(function)) for name, function in functions.items()]


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def _first_line_in(module: str) -> str:
    """The first line about a module, which is not imported because it may need an extra."""
    found = find_spec(module)
    text = Path(found.origin).read_text(encoding="utf-8") if found is not None and found.origin else ""
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


@app.command("show")
def show_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    as_json: options.AsJson = False,
) -> None:
    """Sum up a run from its folder, finished or not."""
    narrower = trains_narrower(read_config(folder))
    records = read_records(folder)
    if records.torn:
        note("the last line of records.jsonl was cut off and is left out")
    summary = Summary.of(records.rows, narrower)
    if as_json:
        print(json.dumps({"folder": str(folder), **summary.as_json()}))
    else:
        print_summary(summary, records.rows, folder)
