"""Runs in processes of their own, told by what their folders hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hand_made import record, write_records
from hand_moved import Clock

from heroes.cli import together as module
from heroes.cli.together import Together, runs_in_progress
from heroes.messages import RoundRecord
from heroes.runs.planned import Planned
from heroes.settings.config import Config

ROUNDS = Config().changed({"federation.rounds": 40})


@pytest.fixture
def clock() -> Clock:
    return Clock()


def planned(folder: Path, *names: str, config: Config = ROUNDS) -> dict[str, Planned]:
    return {name: Planned(config, folder / name) for name in names}


def written(folder: Path, when: float, *rows: RoundRecord) -> None:
    folder.mkdir(exist_ok=True)
    write_records(folder, list(rows))
    os.utime(folder / "records.jsonl", (when, when))


def test_runs_are_judged_by_their_folders(tmp_path: Path, clock: Clock) -> None:
    together = Together(planned(tmp_path, "one", "two", "old", "gone"), now=clock)
    for name, when in (("one", 101.0), ("two", 118.0), ("old", 1.0)):  # one was left by a run before this
        written(tmp_path / name, when, *map(record, range(1, 21)))
    clock.seconds += 20
    head, *under_way = together.lines()
    assert head == "run 0/4  25 %  0:20, 1:00 left"
    assert under_way == ["50 %  round 20 0:19 ago  one", "50 %  round 20  two"]
    together.over.add(tmp_path / "one")
    assert together.lines() == ["run 1/4  38 %  0:20, 0:33 left", "50 %  round 20  two"]


def test_the_limit_that_is_nearest_tells_how_far_a_run_is(tmp_path: Path, clock: Clock) -> None:
    config = ROUNDS.changed({"federation.time_budget": 50, "federation.rounds": 1_000_000})
    together = Together(planned(tmp_path, "one", config=config), now=clock)
    written(tmp_path / "one", 110.0, record(1, 0.5, seconds=12.5))
    clock.seconds += 10
    assert together.lines()[0].endswith("25 %  0:10, 0:30 left")
    written(tmp_path / "one", 110.0, record(1, seconds=60.0))
    assert together.left() == 0


def test_what_was_done_before_makes_nobody_look_fast(tmp_path: Path, clock: Clock) -> None:
    written(tmp_path / "one", 1.0, *map(record, range(1, 21)))
    together = Together(planned(tmp_path, "one"), going_on={tmp_path / "one"}, now=clock)
    clock.seconds += 10
    assert together.lines() == ["run 0/1  50 %  0:10"]
    written(tmp_path / "one", 110.0, *map(record, range(1, 25)))
    assert together.lines()[0] == "run 0/1  60 %  0:10, 0:40 left"


def test_the_last_score_is_told_when_the_last_round_was_not_tested(tmp_path: Path, clock: Clock) -> None:
    together = Together(planned(tmp_path, "one"), now=clock)
    written(tmp_path / "one", 100.0, record(1))
    assert together.lines()[1] == " 2 %  round 1  one"
    written(tmp_path / "one", 100.0, record(1), record(2, 0.812), record(3))
    assert together.lines()[1] == " 8 %  round 3  accuracy 81.20 %  one"


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"\xff\n", b'{"round": 1'])
def test_a_folder_that_cannot_be_read_counts_as_not_begun(
    tmp_path: Path, clock: Clock, content: bytes
) -> None:
    together = Together(planned(tmp_path, "one"), now=clock)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "records.jsonl").write_bytes(content)
    assert together.lines() == ["run 0/1  0 %  0:00"]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path, clock: Clock) -> None:
    together = Together(planned(tmp_path, "one"), now=clock)
    written(tmp_path / "one", 100.0, record(1))
    with (tmp_path / "one" / "records.jsonl").open("a") as file:
        file.write('{"round": 2, ')
    assert "round 1 " in together.lines()[1]


def test_where_there_is_no_terminal_lines_are_told_again_and_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    monkeypatch.setattr(module, "PLAIN", 0.01)
    together = Together(planned(tmp_path, "one"), now=clock, head="mine ")
    written(tmp_path / "one", 100.0, record(1, 0.5))
    with runs_in_progress(together):
        while len(said) < 2:
            said += capsys.readouterr().err.splitlines()
    assert said[0] == "mine run 0/1  2 %  0:00, 0:00 left;  2 %  round 1  accuracy 50.00 %  one"
    with runs_in_progress(together, quiet=True):
        pass
    assert capsys.readouterr().err.splitlines()[2:] == []
