"""`heroes compare` and `heroes report` on real runs, two of them in processes of their own."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import heroes
from hand_made import write_houses, write_run
from typer.testing import CliRunner

from heroes.cli import commands  # noqa: F401  registers them
from heroes.cli.app import app
from heroes.errors import ConfigError

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


@pytest.fixture
def houses(tmp_path: Path) -> list[Path]:
    return write_houses(tmp_path)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two strategies, in two processes at a time."""
    folder = tmp_path_factory.mktemp("compare") / "digits"
    done = heroes(
        "compare",
        "digits",
        "--strategies",
        "heroes,fedavg",
        "--jobs",
        "2",
        "--out",
        str(folder),
        *QUICK,
    )
    assert done.returncode == 0, done.stderr
    assert "heroes" in done.stdout
    assert "fedavg" in done.stdout
    assert f"2 runs, 2 at a time; heroes watch {folder} shows them" in done.stderr
    return folder


def test_a_comparison_folder_holds_runs_tables_pictures_and_a_page(compared: Path) -> None:
    for name in ("heroes-0", "fedavg-0"):
        assert len((compared / name / "records.jsonl").read_text().splitlines()) == 2
        assert not (compared / name / "planned.toml").exists()
    assert json.loads((compared / "comparison.json").read_text())["experiment"] == "digits"
    assert (compared / "comparison.csv").read_text().count("\n") > 5
    assert (compared / "accuracy-time.png").stat().st_size > 5000
    assert "data:image/svg+xml" in (compared / "report.html").read_text()


def test_options_that_say_how_to_run_are_refused_for_runs_that_exist(houses: list[Path]) -> None:
    for option in (["--rounds", "3"], ["--strategies", "fedavg"], ["--overwrite"], ["--set", "seed=1"]):
        done = CliRunner().invoke(app, ["compare", *map(str, houses), *option])
        assert isinstance(done.exception, ConfigError)
        assert f"{option[0]} says how to run, but these are runs that exist" in str(done.exception)


def test_what_is_done_is_not_run_again_and_other_settings_are_refused(compared: Path) -> None:
    before = (compared / "heroes-0" / "records.jsonl").stat().st_mtime_ns
    seeds = ["--strategies", "heroes", "--seeds", "0,1"]
    again = heroes("compare", "digits", *seeds, "--out", str(compared), "--json", *QUICK)
    assert again.returncode == 0, again.stderr
    assert "1 of 2 runs are already done" in again.stderr
    assert len((compared / "heroes-1" / "records.jsonl").read_text().splitlines()) == 2
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
    assert rows["experiment"] == "digits"
    folders = [str(compared / "heroes-0"), str(compared / "fedavg-0")]
    text = heroes("compare", *folders, "--targets", "0.99", "--reference", "fedavg").stdout
    assert "not reached" in text
    assert "Speed-up of fedavg" in text
    wrong = heroes("compare", *folders, "--reference", "fedav")
    assert wrong.returncode == 2
    assert "reference is 'fedav': did you mean 'fedavg'?" in wrong.stderr


def test_runs_of_a_regression_are_shown_reported_and_compared(houses: list[Path], tmp_path: Path) -> None:
    shown = heroes("show", str(houses[0]))
    assert shown.returncode == 0, shown.stderr
    for wanted in ("rmse", "0.2 in round 4", "0.25"):
        assert wanted in shown.stdout
    assert "%" not in shown.stdout
    summary = json.loads(heroes("show", str(houses[0]), "--json").stdout)
    assert (summary["metric"], summary["score"], summary["best_score"]) == ("rmse", 0.2, 0.2)
    done = heroes("compare", *map(str, houses), "--targets", "0.6,0.3", "--out", str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr
    assert "Speed-up of ours to reach a target rmse" in done.stdout
    assert "4.00x" in done.stdout
    assert (tmp_path / "c" / "rmse-time.png").stat().st_size > 5000
    page = heroes("report", *map(str, houses), "-o", str(tmp_path / "page.html"))
    assert page.returncode == 0, page.stderr


def test_a_damaged_record_is_one_sentence_in_every_command(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5, 0.6])
    records = folder / "records.jsonl"
    records.write_text(records.read_text().replace('"seconds": 20.0', '"seconds": "soon"'))
    for command in ("show", "compare", "report", "resume"):
        done = heroes(command, str(folder))
        assert done.returncode == 2
        assert "line 2 of " in done.stderr
        assert "is damaged: seconds is 'soon': it should be a valid number" in done.stderr
        assert "Traceback" not in done.stderr


def test_names_and_reasons_in_records_are_text_and_no_markup(houses: list[Path]) -> None:
    records = houses[0] / "records.jsonl"
    lost = json.dumps([{"client": 1, "reason": "[bold red]x[/bold red] [/]", "cause": "f", "arrived": False}])
    text = records.read_text().replace('"missing": []', f'"missing": {lost}').replace('"rmse"', '"[b]rm[/]"')
    records.write_text(text)
    shown = heroes("show", str(houses[0]))
    assert shown.returncode == 0, shown.stderr
    assert "[bold red]x[/bold red] [/]" in shown.stdout
    assert "[b]rm[/]" in shown.stdout


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
        (["compare", "digits", "--strategies", "heroes,"], "--strategies is ''"),
        (
            [
                "compare",
                "cifar10",
                "--jobs",
                "2",
                "--strategies",
                "heroes,fedavg",
                "--set",
                "data.directory=nowhere",
            ],
            "heroes data get cifar10",
        ),
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


def test_runs_of_different_experiments_and_empty_runs_are_refused(compared: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(compared / "heroes-0", other)
    (other / "config.toml").write_text(
        (other / "config.toml").read_text().replace('experiment = "digits"', 'experiment = "faces"')
    )
    done = heroes("compare", str(compared / "heroes-0"), str(other))
    assert done.returncode == 2
    assert "different experiments" in done.stderr
    (other / "records.jsonl").write_text("")
    empty = heroes("report", str(other), "-o", str(tmp_path / "x.html"))
    assert empty.returncode == 2
    assert "Traceback" not in empty.stderr


def test_latex_is_alone_on_standard_output_and_in_the_folder(houses: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "c"
    asked = ["--targets", "0.6", "--latex", "--out", str(out), "--quiet"]
    told = CliRunner().invoke(app, ["compare", *map(str, houses), *asked])
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("% heroes compare --latex")
    assert r"\caption{Speed-up of ours to reach a target rmse}" in told.stdout
    assert r"theirs & 4.00x \\" in told.stdout
    assert (out / "comparison.tex").read_text() == told.stdout
    both = CliRunner().invoke(app, ["compare", *map(str, houses), "--latex", "--json"])
    assert isinstance(both.exception, ConfigError)
    assert "say one of them" in str(both.exception)
