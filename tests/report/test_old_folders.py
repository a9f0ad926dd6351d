"""Run folders that version 0.1.0 wrote are summed up, compared and reported."""

import json
import tarfile
from pathlib import Path
from statistics import fmean

import command_line
import pytest

from heroes.report import Spread, compare, load_runs, run_pictures

ARCHIVE = Path(__file__).parents[1] / "runs" / "runs-0.1.0.tar.gz"


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, Path]:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "heroes", tmp_path / "adp"


def heroes(*arguments: object) -> str:
    done = command_line.heroes(*map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_old_runs_are_compared_by_what_their_files_say(old: tuple[Path, Path]) -> None:
    runs = load_runs(old)
    lines = [json.loads(line) for line in (old[0] / "records.jsonl").read_text().splitlines()]
    assert [row.score for row in runs[0].rows] == [line["accuracy"] for line in lines]
    assert [row.facts["tau_star"] for row in runs[0].rows] == [line["tau_star"] for line in lines]
    assert runs[0].rows[-1].clients[0].pieces == tuple(lines[-1]["clients"][0]["blocks"])
    mean = fmean(line["accuracy"] for line in lines[-3:])
    found = compare(runs, targets=[mean - 1e-9])
    assert found.find("heroes", "seconds to accuracy", mean - 1e-9) == Spread((lines[-1]["seconds"],))
    assert found.find("heroes", "accuracy at width", 1) == Spread((lines[-1]["accuracy_by_width"]["1"],))
    assert [picture.name for picture in run_pictures(runs[0])] == ["timeline", "blocks", "devices"]
    assert [picture.name for picture in run_pictures(runs[1])] == ["timeline", "devices"]


def test_the_commands_work_on_old_folders(old: tuple[Path, Path], tmp_path: Path) -> None:
    summary = json.loads(heroes("show", old[0], "--json"))
    assert summary["accuracy"] == summary["score"] == pytest.approx(0.7166666666666667)
    assert "adp" in heroes("compare", *old)
    heroes("report", *old, "-o", tmp_path / "page.html")
    assert "Speed-up of heroes" in (tmp_path / "page.html").read_text()
