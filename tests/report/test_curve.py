"""The curve of the test scores in the terminal."""

from typing import Any

import pytest
from hand_made import record
from hypothesis import given
from hypothesis import strategies as st

from heroes.messages import RoundRecord
from heroes.report import RunData, score_curve


def rows(*scores: float | None, **more: Any) -> list[RoundRecord]:
    return [record(n, each, **more) for n, each in enumerate(scores, 1)]


def test_letters_by_hand() -> None:
    assert score_curve(rows(0.1, 0.5, None, 0.89), width=16, height=4, ascii_only=True) == [
        " 90 % |       *",
        "      |   ****",
        "      |",
        " 10 % | **",
        "      +--------",
        "       0 s virtual time 40.0 s",
    ]


def test_a_share_never_goes_beyond_the_whole() -> None:
    drawn = score_curve(rows(1.0, 1.0), width=16, height=2, ascii_only=True)
    assert (drawn[0], drawn[1]) == ("100 % |   *****", " 90 % |")


def test_dots_by_hand() -> None:
    drawn = score_curve(rows(0.0, 0.1), width=16, height=2)
    assert drawn[0] == " 10 % ┤       ⢸"
    assert drawn[1] == "  0 % ┤   ⢀⣀⣀⣀⣸"
    assert drawn[2] == "      └────────"


def test_a_metric_that_is_no_share_has_plain_numbers_beside() -> None:
    drawn = score_curve(
        rows(2.9, 1.2, metric="rmse", lower_is_better=True), width=16, height=2, ascii_only=True
    )
    assert drawn == [
        "    3 |   ****",
        "    1 |       *",
        "      +--------",
        "       0 s virtual time 20.0 s",
    ]
    (top, *_, bottom, _, _) = score_curve(rows(-1234.0, 250.0, metric="reward"), width=30, height=3)
    assert top.startswith(" 1,000 ┤")
    assert bottom.startswith("-2,000 ┤")


def test_a_score_on_the_edge_is_on_the_edge() -> None:
    """3 * 0.1 is a little more than 0.3."""
    drawn = score_curve(rows(0.8, 0.3, metric="rmse"), width=16, height=2, ascii_only=True)
    assert drawn[:2] == ["  0.8 |   ****", "  0.3 |       *"]


@pytest.mark.parametrize("value", [0.0, -3.0, 1e299, 1e-300])
def test_a_flat_curve_is_drawn(value: float) -> None:
    assert len(score_curve(rows(value, value, metric="m"), width=30, height=3)) == 5


def test_nothing_evaluated_nothing_drawn() -> None:
    assert score_curve([]) == []
    assert score_curve(rows(None, None)) == []


def test_a_real_looking_run_fits_its_box(rivals: list[RunData]) -> None:
    drawn = score_curve(rivals[0].rows, width=50, height=6)
    assert len(drawn) == 8
    assert max(map(len, drawn)) <= 50
    assert drawn[-1].split() == ["0", "s", "virtual", "time", "60.0", "s"]


@pytest.mark.parametrize(
    ("metric", "scores"),
    [("accuracy", st.floats(0, 1)), ("loss", st.floats(-1e299, 1e299)), ("rmse", st.floats(0.1, 0.9))],
)
@given(data=st.data(), width=st.integers(1, 120), height=st.integers(1, 20), ascii_only=st.booleans())
def test_any_run_is_drawn_with_a_mark_in_every_late_column(
    metric: str,
    scores: st.SearchStrategy[float],
    data: st.DataObject,
    width: int,
    height: int,
    ascii_only: bool,
) -> None:
    values = data.draw(st.lists(scores | st.none(), max_size=40))
    drawn = score_curve(rows(*values, metric=metric), width, height, ascii_only=ascii_only)
    if all(each is None for each in values):
        assert drawn == []
        return
    lines = max(2, height)
    assert len(drawn) == lines + 2
    edge = drawn[-2].index("+" if ascii_only else "└")
    columns = len(drawn[-2]) - edge - 1
    assert columns == max(8, width - edge - 2)
    body = [line[edge + 1 :].ljust(columns) for line in drawn[:lines]]
    assert all(len(line) == columns for line in body)
    assert any(line[-1] != " " for line in body)
    assert all(line.isascii() for line in drawn) == ascii_only
