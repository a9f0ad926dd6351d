"""Comparisons with numbers worked out by hand."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import pytest
from hand_made import record
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import ConfigError, HeroesError
from heroes.report import Metric, Ratios, RunData, Spread, Summary, Table, compare, load_run, load_runs
from heroes.report.measures import (
    chosen_targets,
    evaluations,
    reach,
    round_marks,
    round_targets,
    round_values,
    running_means,
    score_at,
)
from heroes.report.summary import trains_narrower, untrained

Make = Callable[..., Path]


def test_what_it_took_to_reach_a_target(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5, 0.6, 0.9])
    heroes = found.find("heroes", "seconds to accuracy", 0.5)
    assert heroes is not None
    assert heroes.values == (40.0, 30.0), "not 20 s, by one lucky test"
    assert heroes.mean == 35.0
    assert heroes.std == pytest.approx(50**0.5)
    assert found.find("fedavg", "traffic to accuracy", 0.5) == Spread((16.0, 24.0))
    assert found.find("flanc", "rounds to accuracy", 0.6) == Spread((5.0, None))
    assert found.find("heroes", "seconds to accuracy", 0.9) == Spread((None, None))
    assert found.find("heroes", "waiting") == Spread((1.0, 1.0))
    assert found.find("fedavg", "waiting") == Spread((9.0, 7.0))


def test_ratios_are_paired_by_seed_and_averaged_geometrically(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5])
    faster = found.find("heroes", "speed-up", 0.5, "fedavg")
    assert faster == Ratios((3.0, 6.0))
    assert faster is not None
    assert faster.mean == pytest.approx(18**0.5)
    assert faster.text("{:.2f}".format, unit="x") == "4.24x (3.00 to 6.00)"
    assert found.find("heroes", "speed-up", 0.5, "flanc") == Ratios((1.5, None))
    assert found.find("heroes", "less traffic", 0.5, "fedavg") == Ratios((4.0, 8.0))
    # with seed 1 flanc does not get there
    assert found.find("heroes", "speed-up", 0.5, "geometric mean") == Ratios((pytest.approx(4.5**0.5), None))
    assert found.find("heroes", "speed-up", 0.5, "best of the others") == faster, "flanc got there only once"
    row = next(row for row in found.rows() if row["against"] == "fedavg" and row["what"] == "speed-up")
    assert (row["mean"], row["low"], row["high"]) == (pytest.approx(18**0.5), 3.0, 6.0)


def test_the_best_of_the_others_is_the_soonest_and_a_slow_one_does_not_rule_the_mean(make_run: Make) -> None:
    price = {"heroes": 10.0, "fedavg": 20.0, "flanc": 5.0, "adp": 640.0}
    folders = [make_run(name, [0.5] * 3, strategy=name, seconds=price[name]) for name in price]
    found = compare(load_runs(folders), targets=[0.5])
    assert found.find("heroes", "speed-up", 0.5, "best of the others") == Ratios((0.5,))
    mean = found.find("heroes", "speed-up", 0.5, "geometric mean")
    assert mean is not None
    assert mean.mean == pytest.approx(4.0)  # of 2, 1/2 and 64; the ratio of mean times would be 22


def test_a_comparison_leads_with_the_ratios(rivals: list[RunData]) -> None:
    titles = [table.title for table in compare(rivals, targets=[0.5]).tables()]
    assert titles[0] == "Speed-up of heroes to reach a target accuracy"
    assert titles[1] == "How many times less traffic heroes needs to reach a target accuracy"
    assert titles[2] == "Runs of digits"
    first = compare(rivals, targets=[0.5]).tables()[0]
    assert [row[0] for row in first.rows] == ["fedavg", "flanc", "best of the others", "geometric mean"]


def test_not_reached_is_said_and_never_filled_in(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5, 0.99])
    table = next(table for table in found.tables() if table.title.startswith("Seconds of virtual time"))
    assert table.header == ("strategy", "50 %", "99 %")
    assert table.rows[0] == ("heroes", "35.0 ± 7.1", "not reached")
    assert table.rows[2] == ("flanc", "60.0 (1 of 2 reached)", "not reached")
    text = "\n".join(found.lines())
    assert "best of the others" in text
    assert "not reached" in text
    rows = {
        (row["label"], row["what"], row["at"]): row for row in csv.DictReader(io.StringIO(found.as_csv()))
    }
    assert rows["flanc", "seconds to accuracy", "0.99"]["mean"] == ""
    assert rows["flanc", "seconds to accuracy", "0.5"]["reached"] == "1"
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["measures"] == found.rows()


def test_accuracy_at_times_and_traffic(rivals: list[RunData]) -> None:
    found = compare(rivals, times=[9, 25, 70], traffic=[2.5])
    assert found.find("heroes", "accuracy at seconds", 25) == Spread((0.6, 0.5))
    assert found.find("heroes", "accuracy at seconds", 9) == Spread((None, None))
    assert found.find("heroes", "accuracy at seconds", 70) == Spread((None, None)), (
        "the runs ended after 60 s"
    )
    assert found.find("fedavg", "accuracy at seconds", 70) == Spread((0.6, 0.3))
    assert found.find("flanc", "accuracy at traffic", 2.5) == Spread((0.4, 0.4))
    assert found.find("heroes", "accuracy at width", 2) == Spread((0.7, 0.8))


def test_a_target_counts_by_the_mean_of_three_tests_at_the_time_of_the_last(make_run: Make) -> None:
    run = load_run(make_run("one", [0.2, None, 0.9, 0.6, None, 0.6, 0.9]))
    means = running_means(evaluations(run.rows))
    assert [(each.round, each.score) for each in means] == [(4, 0.566666666667), (6, 0.7), (7, 0.7)]
    found = compare([run], targets=[0.7, 0.75])
    assert found.find("heroes", "rounds to accuracy", 0.7) == Spread((6.0,))
    assert found.find("heroes", "seconds to accuracy", 0.7) == Spread((60.0,))
    assert found.find("heroes", "rounds to accuracy", 0.75) == Spread((None,))
    assert "the mean of the last 3 tests is at the target or better" in "\n".join(found.lines())


def test_a_run_with_fewer_than_three_tests_reaches_nothing_and_is_noted(make_run: Make) -> None:
    found = compare([load_run(make_run("two", [0.9, None, 0.9]))], targets=[0.5])
    assert found.find("heroes", "rounds to accuracy", 0.5) == Spread((None,))
    assert found.find("heroes", "accuracy") == Spread((0.9,))
    assert any("'two' was tested 2 times" in note for note in found.notes)


def test_a_width_that_nobody_trained_is_called_untrained(make_run: Make) -> None:
    folders = [make_run(name, [0.5] * 3, strategy=name) for name in ("heroes", "flanc")]
    records = folders[1] / "records.jsonl"
    records.write_text(records.read_text().replace('"width": 1', '"width": 2'))
    runs = load_runs(folders)
    found = compare(runs)
    assert found.find("heroes", "accuracy at width", 1) == Spread((0.25,))
    assert found.find("flanc", "accuracy at width", 1) == Spread((None,))
    assert found.find("flanc", "accuracy at untrained width", 1) == Spread((0.25,))
    table = next(table for table in found.tables() if "by width" in table.title)
    assert table.rows == (("heroes", "25.0 %", "50.0 %"), ("flanc", "untrained (25.0 %)", "50.0 %"))
    assert "no client of the run ever trained this width" in table.note
    summary = Summary.of(runs[1].rows)
    assert summary.untrained == (1,)
    assert dict(summary.lines())["by width"] == "1: untrained (25.00 %), 2: 50.00 %"


def test_a_width_that_some_seeds_trained_says_how_many(make_run: Make) -> None:
    folders = [make_run(f"s{seed}", [0.5] * 3, seed=seed, strategy="heterofl") for seed in (0, 1)]
    records = folders[1] / "records.jsonl"
    records.write_text(records.read_text().replace('"width": 1', '"width": 2'))
    table = next(table for table in compare(load_runs(folders)).tables() if "by width" in table.title)
    assert table.rows == (("heterofl", "25.0 % (1 of 2 trained)", "50.0 ± 0.0 %"),)


def test_a_width_that_is_trained_as_part_of_wider_ones_is_trained(make_run: Make) -> None:
    folders = [make_run("some", [0.5] * 3), make_run("none", [0.5] * 3, strategy__any_width=0.0)]
    for folder in folders:
        records = folder / "records.jsonl"
        records.write_text(records.read_text().replace('"width": 1', '"width": 2'))
    some, none = load_runs(folders)
    assert untrained(some.rows, trains_narrower(some.config)) == ()
    assert untrained(none.rows, trains_narrower(none.config)) == (1,)
    assert not trains_narrower({"strategy": {"name": "of another package"}})


def test_the_final_score_is_on_the_whole_test_set_and_curves_are_on_the_sample(make_run: Make) -> None:
    folder = make_run("sampled", [0.5, 0.6, 0.7], evaluation__sample=20)
    records = folder / "records.jsonl"
    records.write_text(records.read_text().replace('"2": {"accuracy": 0.7}', '"2": {"accuracy": 0.65}'))
    run = load_run(folder)
    found = compare([run], targets=[0.6])
    assert found.find("heroes", "accuracy") == Spread((0.65,))
    assert found.find("heroes", "rounds to accuracy", 0.6) == Spread((3.0,))
    assert "Scores in the end are on the whole test set" in "\n".join(found.lines())
    assert Summary.of(run.rows).score == 0.65
    assert Summary.of(run.rows).best_score == 0.7


def test_an_epsilon_of_a_study_is_called_so(make_run: Make) -> None:
    folders = [make_run(name, [0.5] * 3, strategy=name) for name in ("heroes", "fedavg")]
    for folder, source in zip(folders, ("seed", "system"), strict=True):
        text = (folder / "records.jsonl").read_text()
        (folder / "records.jsonl").write_text(
            text.replace('"epsilon": null, "noise": null', f'"epsilon": 3.25, "noise": "{source}"')
        )
    found = compare(load_runs(folders))
    table = next(table for table in found.tables() if table.title == "Runs of digits")
    place = table.header.index("epsilon")
    assert [row[place] for row in table.rows] == ["3.25 (study)", "3.25"]
    assert 'privacy.source = "system" would spend that' in table.note
    assert [row["unit"] for row in found.rows() if row["what"] == "epsilon"] == ["study", ""]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"faults__dropout": 0.3}, "faults.dropout is 0.0 (heroes (dropout=0)), 0.3 (fedavg (dropout=0.3))"),
        ({"fleet__jitter": 0.25}, "fleet.jitter is none (heroes (jitter=none)), 0.25 (fedavg (jitter=0.25))"),
    ],
)
def test_runs_in_different_worlds_are_not_compared_and_it_is_said_why(
    make_run: Make, settings: dict[str, float], said: str
) -> None:
    folders = [make_run("h", [0.5] * 3), make_run("a", [0.5] * 3, strategy="fedavg", **settings)]
    found = compare(load_runs(folders), targets=[0.5])
    assert found.places("speed-up") == []
    assert f"runs in different worlds are not compared with each other: {said}" in found.notes


def test_a_run_older_than_a_setting_of_the_world_did_what_its_default_does(make_run: Make) -> None:
    old, new = make_run("h", [0.5] * 3), make_run("a", [0.5] * 3, strategy="fedavg", seconds=20.0)
    text = (old / "config.toml").read_text()
    for line in ("dropout = 0.0\n", 'sample = "none"\n', "classes = []\n", 'jitter = "none"\n'):
        assert text.count(line) == 1
        text = text.replace(line, "")
    (old / "config.toml").write_text(text)
    found = compare(load_runs([old, new]), targets=[0.5])
    assert found.find("heroes", "speed-up", 0.5, "fedavg") == Ratios((2.0,))
    assert found.notes == ()


def test_long_rounds_may_be_tested_more_often(make_run: Make) -> None:
    folders = [make_run("h", [0.5] * 3, evaluation__every=2), make_run("a", [0.5] * 3, strategy="fedavg")]
    found = compare(load_runs(folders), targets=[0.5])
    assert found.find("heroes", "speed-up", 0.5, "fedavg") == Ratios((1.0,))


def test_where_the_data_lies_does_not_matter(make_run: Make) -> None:
    folders = [make_run("h", [0.5] * 3), make_run("a", [0.5] * 3, strategy="fedavg", data__directory="d")]
    found = compare(load_runs(folders), targets=[0.5])
    assert found.find("heroes", "speed-up", 0.5, "fedavg") == Ratios((1.0,))


def test_targets_are_round_and_reached_by_the_best(rivals: list[RunData]) -> None:
    assert compare(rivals).places("seconds to accuracy") == pytest.approx([0.65, 0.7, 0.75, 0.8])
    assert compare(rivals).places("accuracy at seconds") == [20.0, 40.0, 60.0]


def test_runs_that_were_never_evaluated_are_compared_by_what_they_spent(make_run: Make) -> None:
    found = compare([load_run(make_run("one", [None, None]))])
    assert found.places("seconds to accuracy") == []
    assert found.find("heroes", "seconds") == Spread((20.0,))
    assert "not measured" in "\n".join(found.lines())


def test_different_experiments_are_not_compared(make_run: Make) -> None:
    runs = load_runs([make_run("a", [0.5]), make_run("b", [0.5], experiment="other")])
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
    half = [0.5] * 3
    folders = [make_run("h", half), make_run("n", half, seconds=20.0, strategy__blocks="grid")]
    folders += [make_run(name, half, strategy=name, seconds=40.0) for name in ("fedavg", "adp")]
    found = compare(load_runs(folders), targets=[0.5])
    assert found.find("heroes (blocks=nested)", "speed-up", 0.5, "heroes (blocks=grid)") == Ratios((2.0,))
    assert found.find("heroes (blocks=nested)", "speed-up", 0.5, "geometric mean") == Ratios((4.0,))


def test_a_table_is_text_in_columns() -> None:
    table = Table("T", ("a", "b"), (("x", "1"), ("long", "22")), "said")
    assert table.lines() == ["T", "a      b", "x      1", "long  22", "said"]


def windows(tests: list[tuple[int, float]]) -> Iterator[tuple[tuple[int, float], ...]]:
    return zip(tests, tests[1:], tests[2:], strict=False)


@given(st.lists(st.floats(0, 1) | st.none(), min_size=1, max_size=20), st.floats(0.01, 1))
def test_reaching_is_the_first_and_never_below(accuracies: list[float | None], target: float) -> None:
    rows = [record(n, each, seconds=1.0) for n, each in enumerate(accuracies, 1)]
    found = evaluations(rows)
    reached = reach(running_means(found), target, Metric())
    tests = [(n, each) for n, each in enumerate(accuracies, 1) if each is not None]
    means = [(last[0], round(fmean((a, b, last[1])), 12)) for (_, a), (_, b), last in windows(tests)]
    above = [n for n, mean in means if mean >= target]
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
        load_run(make_run(name, [0.4, 0.5, 0.6], strategy=name, clock="wall"))
        for name in ("heroes", "fedavg")
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
    found = compare(houses, targets=[0.3, 0.6, 0.1])
    assert found.metric == Metric("rmse", lower_is_better=True)
    assert found.find("ours", "seconds to rmse", 0.6) == Spread((30.0,))
    assert found.find("theirs", "seconds to rmse", 0.6) == Spread((120.0,))
    assert found.find("theirs", "traffic to rmse", 0.3) == Spread((None,))
    assert found.find("ours", "best rmse") == Spread((0.2,))
    assert found.find("ours", "rmse at seconds", 20.0) == Spread((0.5,))
    assert found.find("ours", "speed-up", 0.6, "theirs") == Ratios((4.0,))
    assert found.find("ours", "less traffic", 0.6, "theirs") == Ratios((8.0,))
    assert found.targets == [0.6, 0.3, 0.1]
    tables = {table.title: table for table in found.tables()}
    seconds = tables["Seconds of virtual time to reach a target rmse"]
    assert seconds.header == ("strategy", "0.6", "0.3", "0.1")
    assert seconds.rows[0] == ("ours", "30.0", "50.0", "not reached")
    assert tables["Runs of houses"].rows[1][:4] == ("theirs", "0", "0.45", "0.45")
    assert tables["Speed-up of ours to reach a target rmse"].rows[0][:2] == ("theirs", "4.00x")
    told = found.as_json()
    assert (told["metric"], told["lower_is_better"]) == ("rmse", True)
    assert [group["strategy"] for group in told["groups"]] == ["ours", "theirs"]


def test_targets_of_an_error_are_chosen_from_the_range_seen(houses: list[RunData]) -> None:
    assert compare(houses).targets == [0.6, 0.5, 0.4, 0.3]
    assert compare(houses[1:]).targets == [0.9, 0.8, 0.7, 0.6]


def test_the_reference_can_be_chosen_and_is_else_the_first(
    rivals: list[RunData], houses: list[RunData]
) -> None:
    found = compare(rivals, targets=[0.5], reference="flanc")
    assert found.find("flanc", "speed-up", 0.5, "fedavg") == Ratios((2.0, None))
    assert found.find("heroes", "speed-up", 0.5, "fedavg") is None
    assert found.find("flanc", "speed-up", 0.5, "best of the others") == Ratios((40 / 60, None))
    assert compare(houses[::-1], targets=[0.6]).find("theirs", "speed-up", 0.6, "ours") == Ratios((0.25,))
    with pytest.raises(
        ConfigError, match=r"reference is 'flank': did you mean 'flanc'\? .*fedavg, flanc, heroes"
    ):
        compare(rivals, reference="flank")


def test_runs_that_go_by_different_metrics_are_not_compared(make_run: Make) -> None:
    runs = load_runs([make_run("a", [0.5]), make_run("b", [0.5], metric="rmse", lower=True)])
    with pytest.raises(
        HeroesError,
        match=r"with different main metrics cannot be compared: accuracy \(a\); rmse, lower is better \(b\)",
    ):
        compare(runs)


def test_a_metric_may_have_the_name_of_another_measure(make_run: Make) -> None:
    found = compare([load_run(make_run("a", [3.0, 5.0, 5.0], metric="seconds"))], targets=[4.0])
    assert found.find("heroes", "metric seconds") == Spread((5.0,))
    assert found.find("heroes", "seconds") == Spread((30.0,))
    assert found.find("heroes", "rounds to seconds", 4.0) == Spread((3.0,))


def test_a_metric_may_be_called_anything(make_run: Make) -> None:
    runs = load_runs(
        [make_run(name, [3.0, 5.0, 7.0, 9.0], metric="{x} %s", strategy=name) for name in ("a{}", "b")]
    )
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


@pytest.fixture
def metered(make_run: Make) -> list[RunData]:
    """To 50 %: heroes 3 rounds of 5 J, fedavg 4 of 30 J."""
    return [
        load_run(make_run("h", [0.5, 0.5, 0.5, 0.6], joules=5.0)),
        load_run(make_run("a", [0.2, 0.5, 0.5, 0.6], strategy="fedavg", joules=30.0)),
    ]


def test_strategies_are_compared_by_energy_as_by_traffic(metered: list[RunData]) -> None:
    found = compare(metered, targets=[0.5, 0.9])
    assert found.find("heroes", "energy to accuracy", 0.5) == Spread((15.0,))
    assert found.find("fedavg", "energy to accuracy", 0.5) == Spread((120.0,))
    assert found.find("heroes", "energy to accuracy", 0.9) == Spread((None,))
    assert found.find("heroes", "less energy", 0.5, "fedavg") == Ratios((8.0,))
    assert found.find("fedavg", "energy") == Spread((120.0,))
    text = "\n".join(found.lines())
    assert "How many times less energy heroes needs to reach a target accuracy" in text
    assert "Energy to reach a target accuracy (J, estimated)" in text
    assert "Energy is an estimate" in text
    assert ("energy", "20.0 J (estimated)") in Summary.of(metered[0].rows).lines()


def test_energy_of_an_older_run_is_not_known_and_not_made_up(
    metered: list[RunData], make_run: Make, rivals: list[RunData]
) -> None:
    old = load_run(make_run("old", [0.5, 0.5, 0.5], strategy="flanc"))
    found = compare([*metered, old], targets=[0.5])
    assert found.find("flanc", "energy to accuracy", 0.5) is None
    assert found.find("heroes", "less energy", 0.5, "flanc") is None
    (table,) = [each for each in found.tables() if each.title.startswith("Energy to reach")]
    assert table.rows == (("heroes", "15.0"), ("fedavg", "120.0"), ("flanc", "not known"))
    plain = "\n".join(compare(rivals).lines())
    assert "nergy" not in plain, "where no run says it, it is not spoken of"
    assert Summary.of(old.rows).energy is None


def test_a_comparison_as_latex_has_booktabs_and_escapes_names(make_run: Make) -> None:
    runs = [
        make_run("h", [0.5, 0.5, 0.5], strategy="my_own"),
        make_run("a", [0.5, 0.5, 0.5], strategy=r"[50%] & $x$ \\ {y}", seed=1),
    ]
    text = compare(load_runs(runs), targets=[0.5], reference="my_own").latex()
    assert r"my\_own & 0 & 50.0 \%" in text
    assert r"{[}50\%] \& \$x\$" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == text.count(r"\begin{tabular}") > 3
    assert text.count("{") == text.count("}")
    for table in text.split(r"\toprule")[1:]:
        rows = [line for line in table.split(r"\bottomrule")[0].splitlines() if line.endswith(r"\\")]
        cells = {len(re.findall(r"(?<!\\)&", row)) for row in rows}
        assert len(cells) == 1, "every row has as many cells as the header"


def test_a_comparison_and_its_records_are_short_in_a_notebook(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5])
    assert repr(found) == "<Comparison: digits, heroes, fedavg, flanc>"
    assert len(repr(found.groups)) < 3000
    assert len(repr(rivals[0])) < 300
    assert repr(rivals[0].rows[0]) == (
        "<RoundRecord: round=1, seconds=10.0, traffic=1000000, loss=1.0, scores={'accuracy': 0.3}, 2 clients>"
    )
    assert repr(Summary.of(rivals[0].rows)) == "<Summary: 6 rounds, accuracy 70.00 %, 60.0 s, 6.00 MB>"
    page = found._repr_html_()
    assert page.count("<table>") == len(found.leading()) == page.count("</table>")
    assert "4.24x (3.00 to 6.00)" in page
    assert len(page) < 10_000
    odd = Table("<t>", ("", "<h>"), (("<n>", "1"),), "<note>")._repr_html_()
    assert not re.search("<(t|h|n|note)>", odd)
