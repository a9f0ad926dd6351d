"""Tables on terminals of any width."""

import pytest

from heroes.cli import console, options
from heroes.report import Table

RATIOS = Table(
    "Speed-up",
    ("against", "80 %", "85 %", "90 %", "95 %"),
    (
        ("adp", "9.93x (9.29 to 10.28)", "12.16x (9.29 to 15.78)", "10.64x (8.65 to 12.22)", "not reached"),
        ("best of the others", *["1.19x (1.19 to 1.20)"] * 4),
    ),
)
OVERVIEW = Table(
    "Runs",
    ("strategy", "seeds", "accuracy", "best", "rounds", "virtual s", "traffic MB", "waiting s"),
    (
        (
            "heroes",
            "0, 1, 2",
            "97.0 ± 0.6 %",
            "98.4 ± 0.2 %",
            "69.3 ± 4",
            "153.7 ± 4.1",
            "71.4",
            "0.39 ± 0.06",
        ),
    ),
)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("table", [RATIOS, OVERVIEW])
def test_a_table_is_broken_between_words_and_never_cut_off(
    table: Table, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "out_console", console.PlainConsole(highlight=False, width=width))
    console.print_table(table)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    for text in (*table.header, *(cell for row in table.rows for cell in row)):
        assert all(word in printed.split() for word in text.split()), text
    assert ("97.0 ± 0.6 %" in printed or table is RATIOS) or width < 120


def test_a_range_goes_below_its_ratio_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "out_console", console.PlainConsole(highlight=False, width=80))
    console.print_table(RATIOS)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "best of 1.19x 1.19x 1.19x 1.19x" in lines


def test_what_does_not_fit_is_shown_below_with_the_names_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "out_console", console.PlainConsole(highlight=False, width=50))
    console.print_table(OVERVIEW)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 50
    assert sum(line.split()[:1] == ["heroes"] for line in lines) == 2


def test_a_sentence_is_broken_between_words_on_a_terminal_and_nowhere_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = " ".join(["federation.time_budget"] * 6)
    for terminal in (True, False):
        shown = console.PlainConsole(
            highlight=False, width=50, stderr=True, force_terminal=terminal, color_system=None
        )
        monkeypatch.setattr(console, "err_console", shown)
        console.note(said)
        lines = capsys.readouterr().err.splitlines()
        assert " ".join(line.strip() for line in lines) == f"note: {said}"
        assert len(lines) == (4 if terminal else 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.phi=3"], "note: data.phi has no part here: data.partition is 'gamma', and it is for missing"),
        (["data.partition=iid", "data.gamma=20"], "it is for gamma or gamma_all or by_device"),
        (["data.gamma=20"], ""),
        (["data.partition=missing", "data.phi=3"], ""),
    ],
)
def test_a_key_that_another_partition_reads_is_worth_a_note(
    settings: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options.say_idle(settings, options.configuration("digits", None, settings, {}))
    printed = capsys.readouterr().err
    assert (said in printed) if said else not printed
