"""The report: one self-contained HTML page with tables, figures, settings and what the runs ran on."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from heroes.errors import LONGEST_LINE, printable
from heroes.messages import TESTS
from heroes.report.compare import compare
from heroes.report.comparison import Comparison
from heroes.report.files import write_whole
from heroes.report.page_style import CSS
from heroes.report.plots import (
    resources_to_targets,
    score_against_energy,
    score_against_skew,
    score_against_time,
    score_against_traffic,
    waiting_per_round,
)
from heroes.report.run_plots import block_counters, round_timeline, widths_and_steps
from heroes.report.runs import Group, RunData, differences
from heroes.report.style import as_bytes, colour
from heroes.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABSENT = "\N{EN DASH}"
LONGEST_NAME = 200  # characters
PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$css</style>
</head>
<body>
<header><h1>$title</h1><p class="sub">$subtitle</p></header>
<main>
$body
</main>
</body>
</html>
""")


@dataclass(frozen=True)
class Picture:
    """A figure, and a caption that tells what it shows to those who cannot see it."""

    name: str
    figure: Figure
    caption: str


def comparison_pictures(found: Comparison) -> list[Picture]:
    """The figures that compare groups of runs, except those that would be empty."""
    runs = [run for group in found.groups for run in group.runs]
    spread = (
        " Shaded: one standard deviation over seeds; thin: single runs."
        if len(runs) > len(found.groups)
        else ""
    )
    name, stem = found.metric.name, found.metric.file_name
    side = "below" if found.metric.lower_is_better else "above"
    reached = f"until the mean of the last {TESTS} tests was at or {side} each target {name}"
    sample = " Tested on a sample of the test set." if any(run.sampled for run in runs) else ""
    drawn = [
        (
            f"{stem}-time",
            score_against_time(found.groups),
            f"Test {name} over {found.clock} time.{spread}{sample}",
        ),
        (
            f"{stem}-traffic",
            score_against_traffic(found.groups),
            f"Test {name} over bytes sent.{spread}{sample}",
        ),
        (
            f"{stem}-energy",
            score_against_energy(found.groups),
            f"Test {name} over what the clients used, as the fleet estimates it.{spread}{sample}",
        ),
        (
            "waiting",
            waiting_per_round(found.groups),
            f"How long clients waited for the slowest one, on average.{spread}",
        ),
        ("resources", resources_to_targets(found), f"Time, traffic and estimated energy {reached}."),
        ("skew", score_against_skew(runs), f"Test {name} against how unevenly the data is shared out."),
    ]
    return [Picture(stem, figure, caption) for stem, figure, caption in drawn if figure is not None]


def run_pictures(run: RunData) -> list[Picture]:
    """The figures that look inside one run, except those that would be empty."""
    drawn = [
        (
            "timeline",
            round_timeline(run),
            "What the clients of the last round did, and how long they waited.",
        ),
        (
            "blocks",
            block_counters(run),
            "How many local steps each coefficient block was trained for; an even colour means evenly.",
        ),
        (
            "devices",
            widths_and_steps(run),
            "The widths and numbers of local steps that each class of device was given.",
        ),
    ]
    return [Picture(name, figure, caption) for name, figure, caption in drawn if figure is not None]


def write_page(runs: Sequence[RunData], path: Path, comparison: Comparison | None = None) -> Path:
    """Write the report on `runs` of one experiment to an HTML file at `path`; `comparison` is made if not
    given.
    """
    return write_whole(path, page(comparison or compare(runs)))


def page(found: Comparison) -> str:
    """The report as the text of an HTML page."""
    count = sum(len(group.runs) for group in found.groups)
    strategies = ", ".join(dict.fromkeys(printable(group.strategy, 60) for group in found.groups))
    clock = "Time is virtual" if found.clock == "virtual" else "Time is wall time"
    sections = [
        _notes(found.notes),
        _section("Summary", "".join(_table(table, found.groups) for table in found.leading())),
        _section("Pictures", _pictures(comparison_pictures(found))),
        _section("Numbers", _side_by_side(_table(table, found.groups) for table in found.details())),
        _section(
            "Inside the runs",
            "".join(_inside(group, opened=not place) for place, group in enumerate(found.groups)),
        ),
        _section("Configuration", _configuration(found.groups)),
        _section("Provenance", _provenance(found.groups)),
    ]
    return PAGE.substitute(
        title=_name(f"heroes: {found.experiment}"),
        subtitle=_words(
            f"{count} {'run' if count == 1 else 'runs'} of {strategies}. {clock}; traffic is both ways."
        ),
        css=CSS,
        body="\n".join(section for section in sections if section),
    )


def book(title: str, about: str, chapters: Mapping[str, Comparison], pictures: Sequence[Picture] = ()) -> str:
    """Several comparisons on one page, and perhaps pictures of all of them together first."""
    sections = [
        _section("All together", _pictures(pictures)),
        *(
            _section(
                name or "All runs",
                _notes(found.notes)
                + "".join(_table(table, found.groups) for table in found.leading())
                + _pictures(comparison_pictures(found))
                + _side_by_side(_table(table, found.groups) for table in found.details()),
            )
            for name, found in chapters.items()
        ),
    ]
    return PAGE.substitute(title=_name(title), subtitle=_words(about), css=CSS, body="\n".join(sections))


def contents(title: str, about: str, pages: Mapping[str, tuple[str, str]]) -> str:
    """A page that leads to others: by address, what each is called and what it is about."""
    links = "".join(
        f'<li><a href="{escape(address)}">{_name(name)}</a>: {_words(told)}</li>'
        for address, (name, told) in pages.items()
    )
    return PAGE.substitute(
        title=_name(title), subtitle=_words(about), css=CSS, body=_section("Figures", f"<ul>{links}</ul>")
    )


def _words(text: str, most: int = LONGEST_LINE) -> str:
    """Text from anywhere, escaped for the page."""
    return escape(printable(text, most))


def _name(text: str) -> str:
    return _words(text, LONGEST_NAME)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _notes(notes: Iterable[str]) -> str:
    said = "".join(f"<li>{_words(note)}</li>" for note in notes)
    return f'<ul class="notes">{said}</ul>' if said else ""


def _table(table: Table, groups: Sequence[Group] = ()) -> str:
    """A table; a row named after a group gets the colour of its strategy."""
    colours = {group.label: colour(group.strategy) for group in groups}
    head = "".join(f'<th scope="col">{_name(name)}</th>' for name in table.header)
    rows = "".join(
        f'<tr><th scope="row">{_dot(colours.get(name))}{_name(name)}</th>{"".join(map(_cell, cells))}</tr>'
        for name, *cells in table.rows
    )
    note = f'<p class="note">{_words(table.note)}</p>' if table.note else ""
    title = _name(table.title)
    return (
        f'<div class="table"><h3>{title}</h3><div class="scroll"><table aria-label="{title}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}</div>"
    )


def _side_by_side(tables: Iterable[str]) -> str:
    content = "".join(tables)
    return f'<div class="tables">{content}</div>' if content else ""


def _dot(shade: str | None) -> str:
    """A dot in this colour, which stays on the line of the word behind it."""
    return f'<span class="dot" style="color:{shade}" aria-hidden="true">●</span>&nbsp;' if shade else ""


def _cell(text: str) -> str:
    """A cell; what is in brackets goes below the value, so that columns stay narrow."""
    value, opened, rest = text.partition(" (")
    below = f"<br><small>({_name(rest)}</small>" if opened else ""
    return f"<td{' class=none' if text.startswith(('not ', 'untrained')) else ''}>{_name(value)}{below}</td>"


def _pictures(pictures: Sequence[Picture]) -> str:
    shown = "".join(
        f'<figure><img alt="{_words(each.caption)}" src="data:image/svg+xml;base64,{_inlined(each.figure)}">'
        f"<figcaption>{_words(each.caption)}</figcaption></figure>"
        for each in pictures
    )
    return f'<div class="figures">{shown}</div>' if shown else ""


def _inlined(figure: Figure) -> str:
    return b64encode(as_bytes(figure, "svg")).decode("ascii")


def _inside(group: Group, *, opened: bool) -> str:
    """A look inside the first run of a group; only that of the first group is unfolded."""
    run = group.runs[0]
    shown = _pictures(run_pictures(run))
    title = f"{group.label}, seed {run.seed}"
    return (
        f"<details{' open' if opened else ''}><summary>{_name(title)}</summary>{shown}</details>"
        if shown
        else ""
    )


def _configuration(groups: Sequence[Group]) -> str:
    """The settings that differ between groups, then all of them, folded."""
    firsts = [group.runs[0] for group in groups]
    differing = {key: values for key, values in differences(firsts).items() if key != "seed"}
    rows = tuple(
        (key, *(ABSENT if value is None else _value(value) for value in values))
        for key, values in differing.items()
    )
    first = (
        _table(Table("What differs", ("setting", *(group.label for group in groups)), rows)) if rows else ""
    )
    return first + "".join(
        f"<details><summary>All settings of {_name(group.label)}</summary>"
        f"<pre>{escape(_settings(group.runs[0]))}</pre></details>"
        for group in groups
    )


def _settings(run: RunData) -> str:
    return "\n".join(
        printable(f"{key} = {_value(value)}") for key, value in run.settings.items() if key != "seed"
    )


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _provenance(groups: Sequence[Group]) -> str:
    """Where each run is and how it ended, then the machines, each told once for all of its runs."""
    runs = [run for group in groups for run in group.runs]
    places = tuple(
        (str(run.path), run.strategy, str(run.seed), str(run.rows[-1].round), _ended(run)) for run in runs
    )
    where = _table(Table("Run folders", ("folder", "strategy", "seed", "rounds", "ended by"), places))
    seen: dict[str, list[RunData]] = {}
    for run in runs:
        seen.setdefault(json.dumps(run.environment, sort_keys=True), []).append(run)
    known = [(dict(members[0].environment), members) for members in seen.values() if members[0].environment]
    keys = dict.fromkeys(key for environment, _ in known for key in environment)
    rows = tuple((key, *(str(environment.get(key, ABSENT)) for environment, _ in known)) for key in keys)
    header = (
        "",
        *("all runs" if len(seen) == 1 else ", ".join(run.label for run in members) for _, members in known),
    )
    return where + (_table(Table("Environment", header, rows)) if rows else "")


def _ended(run: RunData) -> str:
    stopped = run.rows[-1].stopped
    return "not finished" if stopped is None else stopped
