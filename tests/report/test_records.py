"""Reading what runs wrote, also when it is broken."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import RunFolderError
from heroes.report import Summary, read_config, read_records


def row(number: int, **more: object) -> dict[str, object]:
    base: dict[str, object] = {
        "round": number,
        "seconds": 10.0 * number,
        "duration": 10.0,
        "waiting": float(number),
        "traffic": 1000 * number,
        "loss": 1.0 / number,
        "missing": [],
        "clients": [],
    }
    return base | more


def write(folder: Path, rows: list[dict[str, object]], tail: str = "") -> None:
    (folder / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + tail)


def test_whole_lines_are_read_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [row(1), row(2)], tail='{"round": 3, "sec')
    records = read_records(tmp_path)
    assert len(records.rows) == 2
    assert records.torn


def test_a_broken_line_in_the_middle_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text(json.dumps(row(1)) + "\nnonsense\n" + json.dumps(row(3)) + "\n")
    with pytest.raises(RunFolderError, match="line 2"):
        read_records(tmp_path)


def test_a_folder_without_records_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not a run folder"):
        read_records(tmp_path)
    with pytest.raises(RunFolderError, match="not a run folder"):
        read_config(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "records.jsonl").write_bytes(content)
    with contextlib.suppress(RunFolderError):
        assert isinstance(read_records(folder).rows, tuple)


def test_a_summary_by_hand() -> None:
    rows = [
        row(1, accuracy=0.5),
        row(2, accuracy=0.9, missing=[{"client": 3, "reason": "no answer"}]),
        row(3, accuracy=0.8, stopped="rounds", accuracy_by_width={"1": 0.3, "2": 0.8}),
    ]
    summary = Summary.of(rows)
    assert (summary.rounds, summary.seconds, summary.traffic_bytes) == (3, 30.0, 3000)
    assert (summary.accuracy, summary.best_accuracy, summary.best_round) == (0.8, 0.9, 2)
    assert summary.waiting == pytest.approx(2.0)
    assert summary.accuracy_by_width == {1: 0.3, 2: 0.8}
    assert summary.missing == {"no answer": 1}
    text = str(summary)
    assert "80.00 %" in text
    assert "1 x no answer" in text


def test_the_summary_of_nothing_says_so() -> None:
    summary = Summary.of([])
    assert summary.rounds == 0
    assert "not finished" in str(summary)
    assert "not measured" in str(summary)
