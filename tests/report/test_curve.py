"""The accuracy curve in the terminal."""

from hypothesis import given
from hypothesis import strategies as st

from heroes.report import RunData, accuracy_curve


def rows(*accuracies: float | None) -> list[dict[str, object]]:
    return [
        {"round": n, "seconds": 10.0 * n, "traffic": n, "accuracy": each}
        for n, each in enumerate(accuracies, 1)
    ]


def test_letters_by_hand() -> None:
    assert accuracy_curve(rows(0.1, 0.5, None, 0.89), width=16, height=4, ascii_only=True) == [
        " 90 % |       *",
        "      |   ****",
        "      |",
        " 10 % | **",
        "      +--------",
        "       0 s virtual time 40.0 s",
    ]


def test_dots_by_hand() -> None:
    drawn = accuracy_curve(rows(0.0, 0.1), width=16, height=2)
    assert drawn[0] == " 10 % ┤       ⢸"
    assert drawn[1] == "  0 % ┤   ⢀⣀⣀⣀⣸"
    assert drawn[2] == "      └────────"


def test_nothing_evaluated_nothing_drawn() -> None:
    assert accuracy_curve([]) == []
    assert accuracy_curve(rows(None, None)) == []


def test_a_real_looking_run_fits_its_box(rivals: list[RunData]) -> None:
    drawn = accuracy_curve(rivals[0].rows, width=50, height=6)
    assert len(drawn) == 8
    assert max(map(len, drawn)) <= 50
    assert drawn[-1].split() == ["0", "s", "virtual", "time", "30.0", "s"]


@given(
    st.lists(st.floats(0, 1) | st.none(), max_size=40), st.integers(1, 120), st.integers(1, 20), st.booleans()
)
def test_any_run_is_drawn_with_a_mark_in_every_late_column(
    accuracies: list[float | None], width: int, height: int, ascii_only: bool
) -> None:
    drawn = accuracy_curve(rows(*accuracies), width, height, ascii_only=ascii_only)
    if all(each is None for each in accuracies):
        assert drawn == []
        return
    columns, lines = max(8, width - 8), max(2, height)
    assert len(drawn) == lines + 2
    body = [line[7:].ljust(columns) for line in drawn[:lines]]
    assert all(len(line) == columns for line in body)
    assert any(line[-1] != " " for line in body)
    assert all(line.isascii() for line in drawn) == ascii_only
