"""The line of a run on terminals of any width."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hand_made import record
from hand_moved import Clock
from rich.console import Console

from heroes.cli.progress import Line
from heroes.settings.config import Config


@pytest.fixture
def clock() -> Clock:
    return Clock()


def shown(line: Line, width: int) -> str:
    screen = io.StringIO()
    Console(file=screen, width=width, force_terminal=False).print(line)
    (text,) = screen.getvalue().splitlines()
    assert len(text) <= width
    return text.rstrip()


def test_it_is_set_up_only_until_the_first_client_is_asked(clock: Clock) -> None:
    line = Line(Config(), clock)
    assert shown(line, 80).startswith("digits/heroes  setting up  0:00")
    line.work("data", 3, 10)
    assert "data 30 %" in shown(line, 80)
    line.client(1, 0, 10)
    assert shown(line, 80).startswith("digits/heroes  round 1/40  client 0/10  0:00")


@pytest.mark.parametrize("width", [44, 60, 80, 120, 200])
def test_clients_elapsed_and_remaining_are_seen_at_any_width(width: int, clock: Clock) -> None:
    line = Line(Config(), clock)
    clock.seconds += 5
    line.client(1, 0, 10)
    clock.seconds += 60
    line.client(2, 5, 10)  # one and a half rounds in a minute: 38.5 to go
    line.round(record(1, 0.812))
    text = shown(line, width)
    assert "round 2/40  client 5/10  1:05, 25:40 left" in text
    assert ("accuracy 81.20 %" in text) == (width >= 80)
    assert text.startswith("digits/heroes  ") == (width >= 60)
    assert ("traffic" in text) == (width >= 120)
    assert "…" not in text


def test_a_budget_that_ends_the_run_earlier_says_what_remains(clock: Clock) -> None:
    line = Line(Config().changed({"federation.time_budget": 50, "federation.rounds": 1_000_000}), clock)
    line.client(1, 0, 10)
    clock.seconds += 30
    line.round(replace(record(1), seconds=12.5))  # a quarter of the budget
    assert line.left() == pytest.approx(90)


def test_a_run_that_goes_on_is_judged_by_what_was_seen(clock: Clock) -> None:
    line = Line(Config().changed({"federation.rounds": 100}), clock)
    line.client(91, 0, 10)
    clock.seconds += 10
    line.client(92, 0, 10)
    assert line.left() == pytest.approx(90)


def test_foreign_names_command_no_terminal(clock: Clock) -> None:
    line = Line(Config(experiment="[red]x\x1b[31m"), clock)
    assert shown(line, 80).startswith("[red]x\\x1b[31m/heroes  setting up")
