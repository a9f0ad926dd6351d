"""Reading what runs wrote, also when it is broken."""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import record, write_records
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import RunFolderError
from heroes.messages import Abandoned, Lost, plain
from heroes.report import Summary, read_config, read_records


def test_whole_lines_are_read_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    write_records(tmp_path, [record(1), record(2)], tail='{"round": 3, "sec')
    records = read_records(tmp_path)
    assert len(records.rows) == 2
    assert records.torn


def test_a_broken_line_in_the_middle_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    first, third = (json.dumps(plain(record(number))) for number in (1, 3))
    for broken in ("nonsense", "", "[" * 100_000, '{"a": ' + "1" * 5000 + "}"):
        (tmp_path / "records.jsonl").write_text(f"{first}\n{broken}\n{third}\n")
        with pytest.raises(RunFolderError, match=r"line 2 of .* is damaged: it is not a record in JSON$"):
            read_records(tmp_path)
    (tmp_path / "records.jsonl").write_text("[1]\n")
    with pytest.raises(RunFolderError, match=r"line 1 of .* is damaged: it is \[1\], not a record in JSON$"):
        read_records(tmp_path)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    lost = Lost(3, "no answer", "late", arrived=True)
    before = Abandoned(2.5, 1, 2, (3, 4), (lost,))
    row = record(1, 0.5, missing=(lost,), abandoned=(before,), lost={"late": 2}, epsilon=1.5, test_loss=0.25)
    last = record(2, 0.3, metric="rmse", lower_is_better=True, scores_by_width={4: {"rmse": 0.3, "mae": 0.2}})
    write_records(tmp_path, [row, last])
    assert read_records(tmp_path).rows == (row, last)


def test_a_row_of_0_1_0_is_upgraded(tmp_path: Path) -> None:
    row = plain(record(1)) | {
        "tau_star": 15.5,
        "rounds_left": None,
        "rule": "rounds",
        "deadline": 1.5,
        "threshold_unreachable": True,
        "accuracy": 0.75,
        "accuracy_by_width": {"1": 0.5, "2": 0.75},
        "facts": {"counters": [1, 2], "counter_variance": 0.25, "bound": None, "reducing_errors": None},
    }
    for key in ("metric", "lower_is_better", "scores", "scores_by_width"):
        del row[key]
    for place, client in enumerate(row["clients"]):
        client |= {"blocks": [place], "reducing_error": 2.0 + place}
        del client["pieces"]
    (tmp_path / "records.jsonl").write_text(json.dumps(row) + "\n")
    (found,) = read_records(tmp_path).rows
    assert (found.metric, found.lower_is_better, found.score) == ("accuracy", False, 0.75)
    assert found.score_by_width == {1: 0.5, 2: 0.75}
    assert [client.pieces for client in found.clients] == [(0,), (1,)]
    assert {key: value for key, value in found.facts.items() if key != "notices"} == {
        "counters": [1, 2],
        "counter_variance": 0.25,
        "tau_star": 15.5,
        "rule": "rounds",
        "deadline": 1.5,
        "reducing_errors": [2.0, 3.0],
    }
    assert "threshold" in found.facts["notices"][0]


@pytest.mark.parametrize(("rounds", "clients"), [(2000, 10), (3, 2000)])
def test_large_folders_are_read_in_seconds(tmp_path: Path, rounds: int, clients: int) -> None:
    """About a second on two cores of 2020; the limit leaves room for a machine that is busy."""
    many = tuple(
        replace(record(1).clients[0], client=number, pieces=tuple(range(16))) for number in range(clients)
    )
    write_records(tmp_path, [record(number, 0.5, clients=many) for number in range(1, rounds + 1)])
    start = time.process_time()
    assert len(read_records(tmp_path).rows[-1].clients) == clients
    assert time.process_time() - start < 5


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
        record(1, 0.5, waiting=1.0),
        record(2, 0.9, waiting=2.0, missing=(Lost(3, "no answer"),)),
        record(
            3,
            0.8,
            waiting=3.0,
            stopped="rounds",
            scores_by_width={1: {"accuracy": 0.3}, 2: {"accuracy": 0.8}},
        ),
    ]
    summary = Summary.of(rows)
    assert (summary.rounds, summary.seconds, summary.traffic_bytes) == (3, 30.0, 3_000_000)
    assert (summary.score, summary.best_score, summary.best_round) == (0.8, 0.9, 2)
    assert summary.waiting == pytest.approx(2.0)
    assert summary.score_by_width == {1: 0.3, 2: 0.8}
    assert summary.missing == {"no answer": 1}
    text = str(summary)
    assert "80.00 %" in text
    assert "1 x no answer" in text
    told = summary.as_json()
    assert (told["metric"], told["score"], told["best_score"]) == ("accuracy", 0.8, 0.9)
    assert (told["accuracy"], told["best_accuracy"], told["accuracy_by_width"]) == (
        0.8,
        0.9,
        {1: 0.3, 2: 0.8},
    )


def test_the_summary_of_a_regression_goes_by_its_lowest_error() -> None:
    rows = [
        record(
            n, metric="rmse", lower_is_better=True, scores={"rmse": error, "accuracy": 0.5, "seconds": 7.0}
        )
        for n, error in enumerate((0.9, 0.25, 0.5), 1)
    ]
    summary = Summary.of(rows)
    assert (summary.score, summary.best_score, summary.best_round, summary.accuracy) == (0.5, 0.25, 2, 0.5)
    assert summary.lines()[:4] == [
        ("rmse", "0.5"),
        ("best rmse", "0.25 in round 2"),
        ("accuracy", "50.00 %"),
        ("metric seconds", "7"),
    ]
    told = summary.as_json()
    assert (told["metric"], told["lower_is_better"], told["best_score"]) == ("rmse", True, 0.25)
    assert "best_accuracy" not in told


def test_a_round_without_a_usable_score_counts_as_not_measured() -> None:
    rows = [record(1, 0.5), record(2, metric="rmse", scores={"accuracy": 0.4})]
    summary = Summary.of(rows)
    assert (summary.metric, summary.score, summary.scores) == ("rmse", None, {})


def test_a_round_that_was_not_tested_does_not_hide_the_metric() -> None:
    summary = Summary.of([record(1, 0.5, metric="rmse", lower_is_better=True), record(2)])
    assert (summary.metric, summary.lower_is_better, summary.score) == ("rmse", True, 0.5)


def test_the_summary_of_nothing_says_so() -> None:
    summary = Summary.of([])
    assert summary.rounds == 0
    assert "not finished" in str(summary)
    assert "not measured" in str(summary)
