"""`heroes compare` and `heroes report`, as real processes on real runs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HEROES = [sys.executable, "-m", "heroes.cli"]
pytestmark = pytest.mark.timeout(400)  # four runs and a page; on a busy machine that takes its time
QUICK = [
    "--rounds",
    "2",
    "--set",
    "federation.cohort=4",
    "--set",
    "engine.name=in_process",
    "--set",
    "training.probes=0",
]


def heroes(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEROES, *arguments], capture_output=True, text=True, timeout=360, cwd=cwd, check=False
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two schemes, two seeds, in two processes at a time."""
    folder = tmp_path_factory.mktemp("compare") / "digits"
    done = heroes(
        "compare",
        "digits",
        "--strategies",
        "heroes,fedavg",
        "--seeds",
        "0,1",
        "--jobs",
        "2",
        "--out",
        str(folder),
        *QUICK,
    )
    assert done.returncode == 0, done.stderr
    assert "heroes" in done.stdout
    assert "fedavg" in done.stdout
    return folder


def test_a_comparison_folder_holds_runs_tables_pictures_and_a_page(compared: Path) -> None:
    for name in ("heroes-0", "heroes-1", "fedavg-0", "fedavg-1"):
        assert len((compared / name / "records.jsonl").read_text().splitlines()) == 2
        assert not (compared / name / "planned.toml").exists()
    assert json.loads((compared / "comparison.json").read_text())["task"] == "digits"
    assert (compared / "comparison.csv").read_text().count("\n") > 5
    assert (compared / "accuracy-time.png").stat().st_size > 5000
    assert "data:image/svg+xml" in (compared / "report.html").read_text()


def test_what_is_done_is_not_run_again_and_other_settings_are_refused(compared: Path) -> None:
    before = (compared / "heroes-0" / "records.jsonl").stat().st_mtime_ns
    again = heroes("compare", "digits", "--strategies", "heroes", "--out", str(compared), "--json", *QUICK)
    assert again.returncode == 0, again.stderr
    assert "1 of 1 runs are already done" in again.stderr
    assert (compared / "heroes-0" / "records.jsonl").stat().st_mtime_ns == before
    other = heroes(
        "compare",
        "digits",
        "--strategies",
        "heroes",
        "--out",
        str(compared),
        "--set",
        "data.gamma=80",
        *QUICK,
    )
    assert other.returncode == 2
    assert "other settings" in other.stderr


def test_runs_that_exist_are_compared_and_json_is_alone_on_standard_output(compared: Path) -> None:
    done = heroes(
        "compare", str(compared / "heroes-0"), str(compared / "fedavg-0"), "--targets", "0.1,0.99", "--json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows["task"] == "digits"
    text = heroes(
        "compare", str(compared / "heroes-0"), str(compared / "fedavg-0"), "--targets", "0.99"
    ).stdout
    assert "not reached" in text


def test_a_report_is_one_page(compared: Path, tmp_path: Path) -> None:
    done = heroes("report", str(compared / "heroes-0"), "-o", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "data:image/svg+xml" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_run_writes_its_report_when_asked(tmp_path: Path) -> None:
    done = heroes("run", "digits", "--report", "--out", str(tmp_path / "r"), *QUICK)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "report.html").exists()
    assert "report.html" in done.stderr


def test_a_record_cut_in_the_middle_is_said_and_the_rest_used(compared: Path, tmp_path: Path) -> None:
    run = tmp_path / "torn"
    shutil.copytree(compared / "heroes-0", run)
    whole = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(whole[: len(whole) - 100])
    done = heroes("compare", str(run), str(compared / "fedavg-0"))
    assert done.returncode == 0, done.stderr
    assert "cut" in done.stderr
    shown = heroes("show", str(run))
    assert shown.returncode == 0
    assert "cut off" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "digits", "--strategies", "heroes,fedav"], "did you mean 'fedavg'?"),
        (["compare", "digits", "--strategies", "heroes,"], "--strategies has ''"),
        (["compare", "cifar10", "--jobs", "2", "--set", "data.directory=nowhere"], "heroes data get cifar10"),
        (
            ["compare", "digits", "--jobs", "2", "--out", "/proc/nowhere/x"],
            "cannot read or write '/proc/nowhere",
        ),
        (["compare", "digits", "--seeds", "0,x"], "--seeds has 'x'"),
        (["compare", "digits", "--targets", "many"], "--targets has 'many'"),
        (["compare", "digits", "--until-accuracy", "2"], "federation.target_accuracy is 2"),
        (["compare", "digit"], "did you mean 'digits'?"),
        (["compare", "nowhere", "neither"], "'nowhere' is not a run folder"),
        (["report", "nowhere"], "not a run folder"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = heroes(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_runs_of_different_tasks_and_empty_runs_are_refused(compared: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(compared / "heroes-0", other)
    (other / "config.toml").write_text(
        (other / "config.toml").read_text().replace('task = "digits"', 'task = "faces"')
    )
    done = heroes("compare", str(compared / "heroes-0"), str(other))
    assert done.returncode == 2
    assert "different tasks" in done.stderr
    (other / "records.jsonl").write_text("")
    empty = heroes("report", str(other), "-o", str(tmp_path / "x.html"))
    assert empty.returncode == 2
    assert "Traceback" not in empty.stderr
