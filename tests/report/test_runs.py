"""Run folders as data: what is tolerated, what is refused, what belongs together."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from heroes.errors import RunFolderError
from heroes.report import group_runs, load_run, load_runs
from heroes.report.runs import differences, repeated, series_along

Make = Callable[..., Path]


def test_a_run_folder_is_read(make_run: Make) -> None:
    run = load_run(make_run("one", [0.5, None], strategy="flanc", seed=7))
    assert (run.label, run.strategy, run.seed, run.experiment, len(run.rows)) == (
        "one",
        "flanc",
        7,
        "digits",
        2,
    )
    assert not run.torn
    assert run.notes == ()
    assert run.settings["data.gamma"] == 40.0
    assert run.environment == {"python": "3.11.7", "system": "Linux"}


def test_a_cut_off_line_is_left_out_and_said(make_run: Make) -> None:
    run = load_run(make_run("cut", [0.5, 0.6], tail='{"round": 3, "seco'))
    assert (len(run.rows), run.torn) == (2, True)
    assert "cut off and is left out" in run.notes[0]


def test_an_empty_run_and_no_run_are_refused(make_run: Make, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"empty run: it has no finished round$"):
        load_run(make_run("empty", []))
    with pytest.raises(RunFolderError, match="its only line was cut off"):
        load_run(make_run("half", [], tail='{"round": 1'))
    with pytest.raises(RunFolderError, match="not a run folder"):
        load_run(tmp_path / "nowhere")


def test_a_configuration_without_a_strategy_is_refused(make_run: Make) -> None:
    folder = make_run("odd", [0.5])
    (folder / "config.toml").write_text('experiment = "digits"\nseed = 0\n')
    with pytest.raises(RunFolderError, match=r"does not say strategy\.name"):
        load_run(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": "soon"}, "seconds is 'soon': it should be a valid number"),
        ({"seconds": True}, "seconds is True: it should be a valid number"),
        ({"round": 1.5}, "round is 1.5: it should be a valid integer"),
        ({"scores": {"accuracy": [1]}}, r"scores.accuracy is \[1\]: it should be a valid number"),
        ({"scores": {"accuracy": float("nan")}}, r"scores.accuracy is nan, not a number below 1e\+300"),
        ({"scores": {"accuracy": 1.5}}, r"scores.accuracy is 1.5; it should be from 0 to 1"),
        ({"scores": {"m" * 65: 1.5}}, r"a metric is called 'm+…: a name has 1 to 64 characters"),
        ({"metric": ""}, "a metric is called '': a name has"),
        ({"clients": 3}, "clients is 3: it should be a valid array"),
        ({"clients": [{"client": 1}]}, "clients.0.device is missing"),
        ({"missing": [{"client": 1}]}, "missing.0.reason is missing"),
        ({"facts": {"a": [0, 10**400]}}, "facts.a.1 is 1000"),
        ({"facts": {"a": "x" * 10_001}}, "facts.a is a text of 10,001 characters"),
        ({"scores_by_width": {"wide": {}}}, "scores_by_width.wide is 'wide': it should be a valid integer"),
        ({"scores_by_width": {"0": {}}}, "scores_by_width has a width that is not from 1 to"),
        ({"scores_by_width": {"1": {"accuracy": -1}}}, r"scores_by_width.1.accuracy is -1.0; it should"),
    ],
)
def test_what_cannot_be_is_refused_by_line_and_key(
    make_run: Make, change: dict[str, object], said: str
) -> None:
    folder = make_run("damaged", [0.5])
    row = json.loads((folder / "records.jsonl").read_text()) | change
    (folder / "records.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(RunFolderError, match=f"line 1 of .* is damaged: {said}"):
        load_run(folder)


@pytest.mark.parametrize("content", [None, "{", "[1]"])
def test_an_environment_that_is_not_known_is_said(make_run: Make, content: str | None) -> None:
    folder = make_run("unknown", [0.5])
    (folder / "environment.json").unlink()
    if content is not None:
        (folder / "environment.json").write_text(content)
    run = load_run(folder)
    assert run.environment is None
    assert "no readable environment.json" in run.notes[0]


def test_groups_that_differ_little_or_in_keys_of_one_name_have_names_of_their_own(make_run: Make) -> None:
    folders = [
        make_run("a", [0.5], training__learning_rate=0.1, training__momentum=0.5, optimiser__momentum=0.9),
        make_run(
            "b", [0.5], training__learning_rate=0.1000001, training__momentum=0.9, optimiser__momentum=0.5
        ),
    ]
    first, second = (group.label for group in group_runs(load_runs(folders)))
    assert "learning_rate=0.1, " in first
    assert "learning_rate=0.1000001, " in second
    assert "training.momentum=0.5, optimiser.momentum=0.9" in first.replace("learning_rate=0.1, ", "")


def test_seeds_are_grouped_and_variants_are_told_apart(make_run: Make) -> None:
    folders = [
        make_run("a", [0.5], seed=1),
        make_run("b", [0.5], strategy="fedavg", seed=0),
        make_run("c", [0.5], seed=0),
        make_run("d", [0.5], seed=0, strategy__adaptive_tau=False),
    ]
    groups = group_runs(load_runs(folders))
    assert [group.label for group in groups] == [
        "heroes (adaptive_tau=true)",
        "fedavg",
        "heroes (adaptive_tau=false)",
    ]
    assert [group.seeds for group in groups] == [(0, 1), (0,), (0,)]
    assert [group.variant for group in groups] == [0, 0, 1]


def test_other_data_is_said_of_every_strategy(make_run: Make) -> None:
    folders = [make_run("a", [0.5]), make_run("b", [0.5], strategy="fedavg", data__gamma=80.0)]
    groups = group_runs(load_runs(folders))
    assert [group.label for group in groups] == ["heroes (gamma=40)", "fedavg (gamma=80)"]
    assert groups[0].world != groups[1].world
    assert differences([group.runs[0] for group in groups])["data.gamma"] == [40.0, 80.0]
    assert [line.label for line in series_along(load_runs(folders), "data.gamma")] == ["heroes", "fedavg"]


def test_of_the_same_run_twice_the_longer_is_kept(make_run: Make) -> None:
    short, long = make_run("short", [0.5]), make_run("long", [0.5, 0.6], training__device="cpu")
    runs = load_runs([short, long, short])
    assert len(runs) == 2
    groups = group_runs(runs)
    assert [run.label for run in groups[0].runs] == ["long"]
    assert repeated(runs, groups) == [
        "'short' repeats another run (same settings, same seed) and is left out"
    ]


def test_runs_that_say_task_and_experiment_are_of_one_group(make_run: Make) -> None:
    old, new = make_run("old", [0.5], seed=0), make_run("new", [0.5], seed=1)
    file = old / "config.toml"
    file.write_text(file.read_text().replace("experiment =", "task ="))
    runs = load_runs([old, new])
    assert [group.seeds for group in group_runs(runs)] == [(0, 1)]
    assert list(differences(runs)) == ["seed"]
