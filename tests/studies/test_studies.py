"""Studies: read from TOML, run what is missing, keep small files, tell."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heroes.cli.app import app
from heroes.cli.commands import run as _run  # noqa: F401 (registers the commands)
from heroes.errors import ConfigError, RunFolderError
from heroes.messages import RoundRecord
from heroes.report import load_run
from heroes.report.runs import RunData
from heroes.runs.running import run
from heroes.settings import recipes
from heroes.studies import plans
from heroes.studies.kept import Store, key_of, load_kept
from heroes.studies.making import make, missing, outcomes, planned
from heroes.studies.tables import table

TINY = """
about = "How many steps?"
experiment = "digits"
seeds = [100, 101]
budget = 6
targets = [0.1, 0.99]

[settings]
"federation.clients" = 6
"federation.cohort" = 2
"model.max_width" = 2
"data.test_limit" = 100

[runs."two steps"]
"strategy.tau_first" = 2

[runs."dense"]
strategy = "fedavg"
"strategy.tau" = 3
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_a_study_runs_what_is_missing_keeps_it_and_tells(study: Path, tmp_path: Path) -> None:
    kept, runs = tmp_path / "results", tmp_path / "runs"
    command = ["study", str(study), "--results", str(kept), "--runs", str(runs)]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    assert len(list(kept.glob("*.json.gz"))) == 4
    assert list(runs.iterdir()) == []
    assert "two steps" in first.output
    assert "2 of 2" in first.output
    assert all(_taken(found) > 0 for found in Store(kept).runs.values())
    before = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == before
    assert "kept after" not in again.output


def _taken(found: RunData) -> float:
    """The seconds of a core that a kept run took."""
    return dict(found.environment or {})["core_seconds"]


def test_what_a_run_took_is_not_told_if_it_was_gone_on_with(study: Path, tmp_path: Path) -> None:
    def leave(record: RoundRecord) -> None:
        raise KeyboardInterrupt

    study.write_text(TINY.replace("[100, 101]", "[100]"))
    (_, config), *_ = missing(list(plans.rows(plans.read(str(study)))), store := Store(tmp_path / "kept"))
    ours = config.changed({"engine.name": "in_process", "checkpoint.every": 2})
    with suppress(KeyboardInterrupt):
        run(ours, out=tmp_path / "runs" / store.name_of(config), on_round=leave)
    make(planned([("begun", config)], store, tmp_path / "runs"), store, 1, lambda run, came: None)
    found = store.find(config)
    assert found is not None
    assert _taken(found) is None


def test_a_run_that_fails_is_named_and_the_others_are_kept(study: Path, tmp_path: Path) -> None:
    study.write_text(TINY.replace("[100, 101]", "[100]") + '"fleet.shares" = [1.0, 1.0]\n')
    kept = tmp_path / "results"
    command = ["study", str(study), "--results", str(kept), "--runs", str(tmp_path / "runs"), "--jobs", "1"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ConfigError)  # which the command line tells, with exit code 2
    assert "dense, seed 100: fleet.shares has 2 numbers; the fleet has 4 devices" in " ".join(
        done.output.split()
    )
    assert [path.name.split("-")[1] for path in kept.glob("*.json.gz")] == ["heroes"]


def test_what_is_kept_is_small_and_says_what_the_run_folder_does(study: Path, tmp_path: Path) -> None:
    config = next(plans.rows(plans.read(str(study)))).configs[0].changed({"engine.name": "in_process"})
    store = Store(tmp_path / "results")
    assert store.find(config) is None
    run(config, out=tmp_path / "run")
    store.add(tmp_path / "run")
    fresh = Store(tmp_path / "results")
    found, whole = fresh.find(config), load_run(tmp_path / "run")
    assert found is not None
    assert [row.scores for row in found.rows] == [
        {name: float(f"{score:.6g}") for name, score in row.scores.items()} for row in whole.rows
    ]
    assert [client.width for row in found.rows for client in row.clients] == [
        client.width for row in whole.rows for client in row.clients
    ]
    assert found.path.stat().st_size < 300 * len(found.rows) + 1500
    assert fresh.find(config.changed({"seed": 7})) is None
    assert fresh.find(config.changed({"engine.name": "processes"})) is not None
    was = json.loads(gzip.decompress(found.path.read_bytes()))
    was["config"]["task"] = was["config"].pop("experiment")  # as it was called before
    found.path.write_bytes(gzip.compress(json.dumps(was).encode()))
    assert Store(tmp_path / "results").find(config) == found


@pytest.mark.parametrize(
    "setting", ['"training.precision" = "auto"', '"training.learning_rate" = 0.123456789']
)
def test_a_run_is_found_again_whatever_its_settings_became(study: Path, tmp_path: Path, setting: str) -> None:
    study.write_text(TINY.replace("[100, 101]", "[100]").replace("[settings]", f"[settings]\n{setting}"))
    command = ["study", str(study), "--results", str(tmp_path / "kept"), "--runs", str(tmp_path / "runs")]
    assert "kept after" in CliRunner().invoke(app, [*command, "--jobs", "1"]).output
    again = CliRunner().invoke(app, command)
    assert "kept after" not in again.output
    assert "1 of 1" in again.output


@pytest.mark.parametrize(
    ("pace", "read"), [("thrifty", {"thrift"}), ("progress", {"drift", "passes"}), ("constant", set())]
)
def test_settings_that_are_not_read_tell_no_runs_apart(pace: str, read: set[str]) -> None:
    config = recipes.digits().changed({"strategy.pace": pace})
    others = {name: config.changed({f"strategy.{name}": 0.2}) for name in ("thrift", "drift", "passes")}
    found = {name for name, other in others.items() if key_of(other) != key_of(config)}
    assert found == read
    fixed = config.changed({"strategy.adaptive_tau": False})
    assert key_of(fixed) == key_of(fixed.changed({"strategy.thrift": 0.2}))


def test_clients_own_clocks_tell_runs_apart_where_nobody_knows_the_day() -> None:
    def differs(foresight: str) -> bool:
        config = recipes.digits().changed({"fleet.foresight": foresight})
        return key_of(config) != key_of(config.changed({"strategy.own_clock": False}))

    assert not differs("exact")
    assert differs("expected")


def test_a_run_that_ended_before_it_could_be_kept_is_kept(study: Path, tmp_path: Path) -> None:
    study.write_text(TINY.replace("[100, 101]", "[100]"))
    plan, store = plans.read(str(study)), Store(tmp_path / "kept")
    for _, config in missing(list(plans.rows(plan)), store):
        ours = config.changed({"engine.name": "in_process", "checkpoint.every": 2})
        run(ours, out=tmp_path / "runs" / store.name_of(config))
    command = ["study", str(study), "--results", str(store.folder), "--runs", str(tmp_path / "runs")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert done.output.count("was done already, kept") == 2
    assert "1 of 1" in done.output


def test_a_place_that_cannot_be_used_is_told_before_the_first_run(study: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for option in ("--results", "--runs"):
        with pytest.raises(FileExistsError):
            CliRunner().invoke(
                app,
                ["study", str(study), "--runs", str(tmp_path / "r"), option, str(tmp_path / "file")],
                catch_exceptions=False,
            )
    assert not list(tmp_path.glob("r/*"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:40]), "is not a kept result"),
        (lambda path: path.write_bytes(b"{}"), "is not a kept result"),
        (lambda path: path.write_bytes(gzip.compress(b'{"records": []}')), "is not a kept result"),
        (
            lambda path: path.write_bytes(
                gzip.compress(
                    json.dumps(
                        json.loads(gzip.decompress(path.read_bytes())) | {"config": {"no_such": 1}}
                    ).encode()
                )
            ),
            "does not fit this version",
        ),
    ],
)
def test_a_damaged_file_is_named(study: Path, tmp_path: Path, damage, said: str) -> None:
    config = next(plans.rows(plans.read(str(study)))).configs[0].changed({"federation.time_budget": 1})
    run(config.changed({"engine.name": "in_process"}), out=tmp_path / "run")
    path = Store(tmp_path).add(tmp_path / "run").path
    damage(path)
    with pytest.raises(RunFolderError, match=said):
        load_kept(path)
    with pytest.raises(RunFolderError, match=path.name):
        Store(tmp_path).find(config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("about = 1", "is not a study: about"),
        (TINY.replace("budget = 6", 'budget = "six"'), "budget is 'six': it should be a valid number"),
        (TINY.replace("[100, 101]", "[100, 100]"), r"seeds is \[100, 100\]; each seed should be there once"),
        (TINY.replace("[100, 101]", "100"), r"seeds is 100: it should be a list, such as \[100\]"),
        (TINY.replace("[runs.", "[rums."), "unknown key 'rums': did you mean 'runs'"),
        (TINY + '"strategy.no_such" = 1\n', "run 'dense'.*no_such"),
        ("x =", "cannot read"),
        (TINY.replace("experiment", "experimend"), "experiment is missing.*unknown key 'experimend'"),
    ],
)
def test_a_wrong_file_gives_a_sentence(study: Path, text: str, said: str) -> None:
    study.write_text(text)
    with pytest.raises(ConfigError, match=said):
        list(plans.rows(plans.read(str(study))))


def test_an_unknown_study_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown study 'leevers'.*levers"):
        plans.read("leevers")


@pytest.mark.parametrize("name", plans.names())
def test_every_study_that_comes_with_heroes_can_be_run(name: str) -> None:
    plan = plans.read(name)
    rows = [row for variant in plan.variants for row in plans.rows(plan, variant)]
    keys = [config.model_dump_json() for row in rows for config in row.configs]
    assert len(set(keys)) == len(keys), "two rows are the same run"


def test_a_key_of_a_variant_that_only_some_strategies_have_is_for_those() -> None:
    plan = plans.Plan(
        about="which?",
        experiment="digits",
        runs={"ours": {}, "theirs": {"strategy": "fedavg"}},
        variants={"shared": {"strategy.step_limit": "shared", "exchange.up_bits": 4}},
    )
    ours, theirs = (row.configs[0] for row in plans.rows(plan, "shared"))
    assert ours.model_dump()["strategy"]["step_limit"] == "shared"
    assert "step_limit" not in theirs.model_dump()["strategy"]
    assert (ours.exchange.up_bits, theirs.exchange.up_bits) == (4, 4)
    nobody = plan.model_copy(update={"variants": {"wrong": {"strategy.stepp_limit": "shared"}}})
    with pytest.raises(ConfigError, match="stepp_limit"):
        list(plans.rows(nobody, "wrong"))


def test_settings_too_can_be_for_some_of_the_strategies() -> None:
    plan = plans.Plan(
        about="which?",
        experiment="digits",
        settings={"strategy.blocks": "grid", "seed": 7, "heroes": {"exchange.up_bits": 2}},
        runs={"ours": {}, "theirs": {"strategy": "fedavg"}},
    )
    ours, theirs = (row.configs[0].model_dump() for row in plans.rows(plan))
    assert (ours["strategy"]["blocks"], ours["exchange"]["up_bits"]) == ("grid", 2)
    assert ("blocks" in theirs["strategy"], theirs["exchange"]["up_bits"]) == (False, 32)


def test_a_variant_can_mean_something_else_for_one_of_the_strategies(tmp_path: Path) -> None:
    path = tmp_path / "steps.toml"
    path.write_text(
        'about = "which?"\nexperiment = "digits"\n[runs.ours]\n[runs.theirs]\nstrategy = "flanc"\n'
        '[runs.dense]\nstrategy = "fedavg"\n[variants.short]\n"strategy.tau" = 9\n"exchange.up_bits" = 8\n'
        '[variants.short.flanc]\n"strategy.tau" = 3\n'
    )
    plan = plans.read(str(path))
    ours, theirs, dense = (row.configs[0].model_dump() for row in plans.rows(plan, "short"))
    assert (theirs["strategy"]["tau"], dense["strategy"]["tau"]) == (3, 9)
    assert [each["exchange"]["up_bits"] for each in (ours, theirs, dense)] == [8, 8, 8]
    path.write_text(path.read_text().replace("short.flanc", "short.flank"))
    with pytest.raises(ConfigError, match=r"flank.*did you mean 'flanc'"):
        list(plans.rows(plans.read(str(path)), "short"))


def test_rows_without_runs_are_told_too(study: Path, tmp_path: Path) -> None:
    plan = plans.read(str(study))
    rows = list(plans.rows(plan))
    store = Store(tmp_path / "none")
    assert [config.seed for _, config in missing([*rows, *rows], store)] == [100, 100, 101, 101]
    assert [row[1] for row in table(plan, list(outcomes(rows, store))).rows] == ["0 of 2", "0 of 2"]
