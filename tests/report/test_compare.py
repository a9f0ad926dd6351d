"""Comparisons with numbers worked out by hand."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hand_made import record
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import ConfigError, HeroesError
from heroes.report import Metric, RunData, Spread, Table, compare, load_run, load_runs
from heroes.report.measures import (
    chosen_targets,
    evaluations,
    reach,
    round_marks,
    round_targets,
    round_values,
    score_at,
)

Make = Callable[..., Path]


def test_what_it_took_to_reach_a_target(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5, 0.6, 0.9])
    heroes = found.find("heroes", "seconds to accuracy", 0.5)
    assert heroes is not None
    assert heroes.values == (20.0, 10.0)
    assert heroes.mean == 15.0
    assert heroes.std == pytest.approx(50**0.5)
    assert found.find("fedavg", "traffic to accuracy", 0.5) == Spread((8.0, 12.0))
    assert found.find("flanc", "rounds to accuracy", 0.6) == Spread((3.0, None))
    assert found.find("heroes", "seconds to accuracy", 0.9) == Spread((None, None))
    assert found.find("heroes", "waiting") == Spread((1.0, 1.0))
    assert found.find("fedavg", "waiting") == Spread((9.0, 7.0))


def test_speed_up_and_traffic_saved_are_paired_by_seed(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5])
    assert found.find("heroes", "speed-up", 0.5, "fedavg") == Spread((3.0, 9.0))
    assert found.find("heroes", "speed-up", 0.5, "flanc") == Spread((2.0, None))
    assert found.find("heroes", "traffic saved", 0.5, "fedavg") == Spread((1 - 2 / 8, 1 - 1 / 12))
    # seed 0: mean of 60 s and 40 s against 20 s; with seed 1 flanc does not get there
    assert found.find("heroes", "speed-up", 0.5, "mean of the others") == Spread((2.5, None))


def test_not_reached_is_said_and_never_filled_in(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5, 0.99])
    table = next(table for table in found.tables() if table.title.startswith("Seconds of virtual time"))
    assert table.header == ("strategy", "50 %", "99 %")
    assert table.rows[0] == ("heroes", "15.0 ± 7.1", "not reached")
    assert table.rows[2] == ("flanc", "40.0 (1 of 2 reached)", "not reached")
    text = "\n".join(found.lines())
    assert "mean of the others" in text
    assert "not reached" in text
    rows = {
        (row["label"], row["what"], row["at"]): row for row in csv.DictReader(io.StringIO(found.as_csv()))
    }
    assert rows["flanc", "seconds to accuracy", "0.99"]["mean"] == ""
    assert rows["flanc", "seconds to accuracy", "0.5"]["reached"] == "1"
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["measures"] == found.rows()


def test_accuracy_at_times_and_traffic(rivals: list[RunData]) -> None:
    found = compare(rivals, times=[9, 25, 50], traffic=[2.5])
    assert found.find("heroes", "accuracy at seconds", 25) == Spread((0.5, 0.5))
    assert found.find("heroes", "accuracy at seconds", 9) == Spread((None, None))
    assert found.find("heroes", "accuracy at seconds", 50) == Spread((None, None)), (
        "the runs ended after 30 s"
    )
    assert found.find("fedavg", "accuracy at seconds", 50) == Spread((0.3, 0.3))
    assert found.find("flanc", "accuracy at traffic", 2.5) == Spread((0.4, 0.4))
    assert found.find("heroes", "accuracy at width", 2) == Spread((0.5, 0.5))


def test_smoothing_takes_whole_windows_of_evaluations(make_run: Make) -> None:
    run = load_run(make_run("one", [0.2, None, 0.8, 0.5, 0.7]))
    assert [each.score for each in evaluations(run.rows, 2)] == pytest.approx([0.5, 0.65, 0.6])
    assert [each.round for each in evaluations(run.rows, 2)] == [3, 4, 5]
    found = compare([run], targets=[0.6], smooth=2)
    assert found.find("heroes", "rounds to accuracy", 0.6) == Spread((4.0,))
    assert "means of the last 2 evaluations" in "\n".join(found.lines())


def test_targets_are_round_and_reached_by_the_best(rivals: list[RunData]) -> None:
    assert compare(rivals).places("seconds to accuracy") == pytest.approx([0.55, 0.6, 0.65, 0.7])
    assert compare(rivals).places("accuracy at seconds") == [10.0, 20.0, 30.0]


def test_runs_that_were_never_evaluated_are_compared_by_what_they_spent(make_run: Make) -> None:
    found = compare([load_run(make_run("one", [None, None]))])
    assert found.places("seconds to accuracy") == []
    assert found.find("heroes", "seconds") == Spread((20.0,))
    assert "not measured" in "\n".join(found.lines())


def test_different_tasks_are_not_compared(make_run: Make) -> None:
    runs = load_runs([make_run("a", [0.5]), make_run("b", [0.5], task="other")])
    with pytest.raises(HeroesError, match=r"different experiments .* digits \(a\); other \(b\)"):
        compare(runs)


def test_wrong_arguments_are_refused(rivals: list[RunData]) -> None:
    with pytest.raises(HeroesError, match="at least one run"):
        compare([])
    with pytest.raises(ConfigError, match=r"target accuracy is 80: .* 0.8 for 80 %"):
        compare(rivals, targets=[80])
    with pytest.raises(ConfigError, match="time is -1"):
        compare(rivals, times=[-1])
    with pytest.raises(ConfigError, match="traffic is 0"):
        compare(rivals, traffic=[0])
    with pytest.raises(ConfigError, match="smooth is 0"):
        compare(rivals, smooth=0)


def test_notes_say_what_a_reader_must_know(make_run: Make) -> None:
    folders = [
        make_run("h", [0.5], seed=0, tail="{"),
        make_run("a", [0.5], strategy="fedavg", seed=5),
        make_run("g", [0.5], strategy="fedavg", seed=0, data__gamma=80.0),
    ]
    notes = "\n".join(compare(load_runs(folders)).notes)
    assert "cut off" in notes
    assert "fedavg (gamma=40) and heroes (gamma=40) have no seed in common" in notes
    assert "no run of heroes to compare with fedavg (gamma=80)" in notes


def test_ablations_are_compared_but_do_not_count_as_others(make_run: Make) -> None:
    folders = [make_run("h", [0.5]), make_run("n", [0.5], seconds=20.0, strategy__blocks="nested")]
    folders += [make_run(name, [0.5], strategy=name, seconds=40.0) for name in ("fedavg", "adp")]
    found = compare(load_runs(folders), targets=[0.5])
    assert found.find("heroes (blocks=grid)", "speed-up", 0.5, "heroes (blocks=nested)") == Spread((2.0,))
    assert found.find("heroes (blocks=grid)", "speed-up", 0.5, "mean of the others") == Spread((4.0,))


def test_a_table_is_text_in_columns() -> None:
    table = Table("T", ("a", "b"), (("x", "1"), ("long", "22")), "said")
    assert table.lines() == ["T", "a      b", "x      1", "long  22", "said"]


@given(st.lists(st.floats(0, 1) | st.none(), min_size=1, max_size=20), st.floats(0.01, 1))
def test_reaching_is_the_first_and_never_below(accuracies: list[float | None], target: float) -> None:
    rows = [record(n, each, seconds=1.0) for n, each in enumerate(accuracies, 1)]
    found = evaluations(rows)
    reached = reach(found, target, Metric())
    above = [n for n, each in enumerate(accuracies, 1) if each is not None and each >= target]
    assert (reached.round if reached else None) == (above[0] if above else None)
    run = RunData(Path(), "", "heroes", 0, "digits", {}, tuple(rows))
    for moment in (0.5, 1.0, len(rows) / 2 + 0.6):
        before = [each for each in accuracies[: int(moment)] if each is not None]
        ended = moment > len(rows)
        assert score_at(run, found, seconds=moment) == (before[-1] if before and not ended else None)


@given(st.floats(0, 1))
def test_round_targets_stay_within_reach(best: float) -> None:
    targets = round_targets(best)
    assert all(0 < target <= best + 1e-8 for target in targets)
    assert list(targets) == sorted(targets)
    assert len(targets) == 4 or best < 0.005


@given(st.floats(1e-6, 1e12))
def test_round_marks_are_a_few_and_not_beyond(limit: float) -> None:
    marks = round_marks(limit)
    assert 3 <= len(marks) <= 6
    assert 0 < marks[0] < marks[-1] <= limit * (1 + 1e-6)


def test_real_time_is_called_so_and_not_compared_with_virtual_time(make_run: Make) -> None:
    real = [
        load_run(make_run(name, [0.4, 0.5], strategy=name, clock="wall")) for name in ("heroes", "fedavg")
    ]
    text = "\n".join(compare(real).lines())
    assert "Seconds of wall time to reach a target accuracy" in text
    assert "wall s" in text
    assert "virtual" not in text
    virtual = load_run(make_run("virtual", [0.4, 0.5]))
    with pytest.raises(
        HeroesError,
        match=r"different clocks cannot be compared: virtual \(virtual\); wall \(heroes, fedavg\)",
    ):
        compare([*real, virtual])


def test_an_error_is_reached_from_above_and_the_lowest_is_the_best(houses: list[RunData]) -> None:
    found = compare(houses, targets=[0.3, 0.5, 0.1])
    assert found.metric == Metric("rmse", lower_is_better=True)
    assert found.find("ours", "seconds to rmse", 0.5) == Spread((20.0,))
    assert found.find("theirs", "seconds to rmse", 0.5) == Spread((60.0,))
    assert found.find("theirs", "traffic to rmse", 0.3) == Spread((None,))
    assert found.find("ours", "best rmse") == Spread((0.3,))
    assert found.find("ours", "rmse at seconds", 20.0) == Spread((0.5,))
    assert found.find("ours", "speed-up", 0.5, "theirs") == Spread((3.0,))
    assert found.find("ours", "traffic saved", 0.5, "theirs") == Spread((1 - 2 / 12,))
    assert found.targets == [0.5, 0.3, 0.1]
    tables = {table.title: table for table in found.tables()}
    seconds = tables["Seconds of virtual time to reach a target rmse"]
    assert seconds.header == ("strategy", "0.5", "0.3", "0.1")
    assert seconds.rows[0] == ("ours", "20.0", "30.0", "not reached")
    assert tables["Runs of houses"].rows[1][:4] == ("theirs", "0", "0.45", "0.45")
    assert tables["Speed-up of ours to reach a target rmse"].rows[0][:2] == ("theirs", "3.00x")
    told = found.as_json()
    assert (told["metric"], told["lower_is_better"]) == ("rmse", True)
    assert [group["strategy"] for group in told["groups"]] == ["ours", "theirs"]


def test_targets_of_an_error_are_chosen_from_the_range_seen(houses: list[RunData]) -> None:
    assert compare(houses).targets == [0.6, 0.5, 0.4, 0.3]
    assert compare(houses[1:]).targets == [0.8, 0.7, 0.6, 0.5]


def test_the_reference_can_be_chosen_and_is_else_the_first(
    rivals: list[RunData], houses: list[RunData]
) -> None:
    found = compare(rivals, targets=[0.5], reference="flanc")
    assert found.find("flanc", "speed-up", 0.5, "fedavg") == Spread((1.5, None))
    assert found.find("heroes", "speed-up", 0.5, "fedavg") is None
    assert found.find("flanc", "speed-up", 0.5, "mean of the others") == Spread((1.0, None))
    assert compare(houses[::-1], targets=[0.5]).find("theirs", "speed-up", 0.5, "ours") == Spread((1 / 3,))
    with pytest.raises(
        ConfigError, match=r"reference is 'flank': did you mean 'flanc'\? .*fedavg, flanc, heroes"
    ):
        compare(rivals, reference="flank")


def test_runs_that_go_by_different_metrics_are_not_compared(make_run: Make) -> None:
    runs = load_runs([make_run("a", [0.5]), make_run("b", [0.5], metric="rmse", lower=True)])
    with pytest.raises(
        HeroesError,
        match=r"go by different metrics cannot be compared: accuracy \(a\); rmse, lower is better \(b\)",
    ):
        compare(runs)


def test_a_metric_may_have_the_name_of_another_measure(make_run: Make) -> None:
    found = compare([load_run(make_run("a", [3.0, 5.0], metric="seconds"))], targets=[4.0])
    assert found.find("heroes", "metric seconds") == Spread((5.0,))
    assert found.find("heroes", "seconds") == Spread((20.0,))
    assert found.find("heroes", "rounds to seconds", 4.0) == Spread((2.0,))


def test_a_metric_may_be_called_anything(make_run: Make) -> None:
    runs = load_runs([make_run(name, [3.0, 5.0], metric="{x} %s", strategy=name) for name in ("a{}", "b")])
    text = "\n".join(compare(runs).lines())
    assert "Speed-up of a{} to reach a target {x} %s" in text


def test_targets_of_any_size_are_allowed_but_for_shares(houses: list[RunData]) -> None:
    assert compare(houses, targets=[80, -1]).targets == [80, -1]
    with pytest.raises(ConfigError, match="target rmse is nan: it should be a finite number"):
        compare(houses, targets=[float("nan")])


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=9), st.booleans())
def test_chosen_targets_lie_within_what_was_seen(scores: list[float], lower: bool) -> None:
    metric = Metric("m", lower)
    targets = chosen_targets(metric, scores)
    slack = 1e-6 * (max(scores) - min(scores))
    assert all(min(scores) - slack <= target <= max(scores) + slack for target in targets)
    assert list(targets) == sorted(set(targets))
    assert len(targets) == 4 or max(scores) - min(scores) <= 1e-9 * max(map(abs, scores)) or not any(scores)


def test_round_values_by_hand() -> None:
    assert round_values(100.0, 1000.0) == (250.0, 500.0, 750.0, 1000.0)
    assert round_values(20.0, 1000.0) == (20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
    assert round_values(3.0, 3.0) == ()
    assert chosen_targets(Metric("reward"), [-5.0, 12.0]) == (-5.0, 0.0, 5.0, 10.0)
