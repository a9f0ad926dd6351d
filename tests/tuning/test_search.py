"""The search by made-up results: what is best, what is made again, what is refused."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Literal

import pytest
from hand_made import record

from heroes.errors import ConfigError, RunFolderError, TrainingError
from heroes.settings import tuned_files
from heroes.settings.config import Config, to_toml
from heroes.settings.recipes import recipe, tuned
from heroes.strategies.base import SameTau
from heroes.tuning import workers
from heroes.tuning.outcome import markdown, settings_file, tables
from heroes.tuning.results import Book, Trial, described, result_of
from heroes.tuning.search import Search
from heroes.tuning.stages import RATE

TRIAL = {"federation.time_budget": 50.0, "data.validation": 0.1}
Scores = Callable[[Trial], Sequence[float]]


def base(strategy: str = "fedavg", **changes: object) -> Config:
    return recipe("digits", strategy).changed({**TRIAL, **changes})


def search(path: Path, *strategies: str, grid: dict[str, list[object]] | None = None) -> Search:
    bases = {name: base(name) for name in strategies or ("fedavg",)}
    return Search(bases, grid or {}, Book(path / "digits.jsonl"))


def made(found: Search, scores: Scores) -> list[Trial]:
    """Run a search whose trials have these scores, one after every ten seconds; which trials were made."""
    trials: list[Trial] = []

    def make_all(todo: Sequence[Trial], known: int, later: int) -> None:
        for trial in todo:
            rows = [record(n, score) for n, score in enumerate(scores(trial), 1)]
            found.book.add(result_of(trial, rows, 1.0))
            trials.append(trial)

    found.check()
    found.run(make_all)
    return trials


def by_rate(trial: Trial) -> list[float]:
    """Best at 0.2 and beyond, and with ten steps."""
    rate, tau = trial.config.training.learning_rate, trial.settings["strategy.tau"]
    return [0.1, 0.2, 0.3, 0.5 + rate / 2 + (0.05 if tau == 10 else 0)]


def test_the_stages_lead_to_the_best_settings_and_are_not_made_twice(tmp_path: Path) -> None:
    first = search(tmp_path)
    trials = made(first, by_rate)
    assert {trial.seed for trial in trials} == {100, 101}
    assert len(trials) == 2 * (3 + 1 + 2 + 1)
    assert first.candidates("fedavg")[0].settings == {RATE: 0.4, "strategy.tau": 10}
    assert made(search(tmp_path), by_rate) == []


def test_keys_of_a_strategys_own_are_tried_and_are_no_reason_to_refuse_the_book(tmp_path: Path) -> None:
    trials = made(search(tmp_path, "fedadam"), lambda trial: [0.5] * 4)
    assert {trial.settings.get("optimiser.rate") for trial in trials} == {
        None,
        0.003,
        0.1,
    }  # 0.03 is the recipe's
    assert made(search(tmp_path, "fedadam"), lambda trial: [0.5] * 4) == []


def test_the_file_of_settings_says_what_the_trials_had(tmp_path: Path) -> None:
    assert tuned("digits", base().strategy)["strategy.tau"] != 3
    found = Search(
        {"fedavg": base(**{"strategy.tau": 3})}, {RATE: [0.05, 0.1]}, Book(tmp_path / "digits.jsonl")
    )
    made(found, lambda trial: [0.5] * 4)
    assert '"strategy.tau" = 3\n' in settings_file(found, "heroes tune")


def test_no_stage_asks_for_more_steps_than_the_strategy_allows(tmp_path: Path) -> None:
    found = Search({"adp": base("adp", **{"strategy.tau_max": 15})}, {}, Book(tmp_path / "digits.jsonl"))
    trials = made(found, lambda trial: [0.5] * 4)
    assert {trial.settings["strategy.tau_first"] for trial in trials} == {15, 10}


def test_a_failure_that_settings_cannot_be_blamed_for_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr("heroes.runs.running.run", full)
    ended = workers._made(to_toml(base()), tmp_path / "run", False, Event())
    assert (ended.failed, ended.exit_code) == ("MemoryError: ", workers.UNEXPECTED)
    assert ended.exit_code != TrainingError.exit_code  # which counts against the settings


class Limited(SameTau):
    """A strategy with two ways to limit steps, the first of which is the default."""

    name: Literal["limited"] = "limited"
    """the strategy"""
    step_limit: Literal["shared", "own"] = "shared"
    """the limit"""


def test_what_is_the_default_anyway_is_not_tried_again(tmp_path: Path) -> None:
    found = search(tmp_path)
    found.bases = {"limited": base().with_strategy(Limited())}
    trials = made(found, lambda trial: [0.6 if "strategy.step_limit" in trial.settings else 0.5] * 4)
    limits = [trial.settings.get("strategy.step_limit") for trial in trials]
    assert "shared" not in limits
    assert limits.count("own") == 2
    assert found.candidates("limited")[0].settings["strategy.step_limit"] == "own"


def test_the_results_file_alone_says_what_is_done(tmp_path: Path) -> None:
    whole = search(tmp_path / "here")
    made(whole, by_rate)
    lines = whole.book.path.read_text().splitlines()
    assert len(lines) == 14
    there = tmp_path / "there"
    there.mkdir()
    (there / "digits.jsonl").write_text("\n".join(lines[:5]) + "\n" + lines[5][:40])
    rest = search(there)
    assert rest.book.torn
    assert len(made(rest, by_rate)) == 9
    assert rest.candidates("fedavg")[0] == whole.candidates("fedavg")[0]


def test_a_last_line_without_its_end_is_kept_if_it_is_whole(tmp_path: Path) -> None:
    made(search(tmp_path), by_rate)
    file = tmp_path / "digits.jsonl"
    text = file.read_text()
    file.write_text(text.rstrip("\n"))
    assert made(search(tmp_path), by_rate) == []
    assert file.read_text() == text


def test_equal_scores_are_decided_by_time(tmp_path: Path) -> None:
    found = search(tmp_path, grid={RATE: [0.1, 0.2]})
    made(found, lambda trial: [0.1, 0.5, 0.5, 0.5] if trial.settings[RATE] == 0.2 else [0.1, 0.1, 0.1, 0.5])
    assert [each.settings[RATE] for each in found.candidates("fedavg")] == [0.2, 0.1]


def test_a_trial_that_failed_or_was_never_tested_is_the_worst(tmp_path: Path) -> None:
    found = search(tmp_path, grid={RATE: [0.1, 0.2, 0.3]})
    config = found.bases["fedavg"]
    for rate, failed in ((0.1, "every update was refused"), (0.2, None), (0.3, None)):
        for seed in found.seeds:
            trial = Trial(config.changed({RATE: rate, "seed": seed}), {RATE: rate})
            rows = [] if rate == 0.2 else [record(1, 0.2)]
            found.book.add(result_of(trial, rows, 1.0, failed))
    made(found, lambda trial: pytest.fail("it was made again"))
    best, *others = found.candidates("fedavg")
    assert (best.settings, best.score) == (
        {RATE: 0.3},
        pytest.approx(0.18),
    )  # up to a fifth of the budget a line
    assert [each.score for each in others] == [None, None]
    assert "| failed |" in markdown(tables(found), "heroes tune")


def test_results_under_other_settings_are_refused_by_their_key(tmp_path: Path) -> None:
    made(search(tmp_path), by_rate)
    other = search(tmp_path)
    other.bases = {"fedavg": base(**{"federation.time_budget": 60.0})}
    with pytest.raises(RunFolderError, match=r"with federation\.time_budget = 50\.0, but now .* = 60\.0"):
        other.check()
    searched = search(tmp_path, grid={"training.momentum": [0.5]})
    with pytest.raises(RunFolderError, match="choose another --out"):
        searched.check()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1 of .* is damaged: it: Invalid JSON"),
        ('{"strategy": "fedavg"}', "line 1 of .* is damaged: settings: Field required"),
    ],
)
def test_a_damaged_line_is_one_sentence_and_stays(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "digits.jsonl"
    file.write_text(f"{line}\n")
    with pytest.raises(RunFolderError, match=said):
        Book(file)
    assert file.read_text() == f"{line}\n"


def test_what_a_strategy_cannot_take_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fedavg: unknown key 'training\.learning_rat'"):
        search(tmp_path, grid={"training.learning_rat": [0.1]}).check()
    with pytest.raises(ConfigError, match=r"fedavg: training\.learning_rate is 'x'"):
        search(tmp_path, grid={RATE: [0.1, "x"]}).check()


def test_a_new_key_with_a_default_does_not_make_old_results_strange(tmp_path: Path) -> None:
    tuned = {"strategy.tau": 5}  # what the recipe has for it, where that is no default
    assert described(base()) == {"experiment": "digits", **TRIAL, **tuned}
    assert described(base(**{"engine.name": "in_process", "seed": 9, "checkpoint.every": 5})) == described(
        base()
    )


def test_results_that_say_task_count(tmp_path: Path) -> None:
    made(search(tmp_path, grid={RATE: [0.1, 0.2]}), lambda trial: [0.5] * 4)
    file = tmp_path / "digits.jsonl"
    file.write_text(file.read_text().replace('"experiment"', '"task"'))
    made(search(tmp_path, grid={RATE: [0.1, 0.2]}), lambda trial: pytest.fail("it was made again"))


def test_the_file_of_settings_is_read_back_with_what_suited_before(tmp_path: Path) -> None:
    found = search(tmp_path, grid={RATE: [0.1, 0.2]})
    found.bases = {name: replace_experiment(config) for name, config in found.bases.items()}
    made(found, lambda trial: [trial.config.training.learning_rate] * 4)
    file = tmp_path / "x.toml"
    file.write_text(settings_file(found, "heroes tune cifar10\n--odd"))
    before = tuned_files.shipped("cifar10")["fedavg"]
    assert before
    had = found.bases["fedavg"].model_dump()["strategy"]["tau"]
    assert tuned_files.read(file) == {"fedavg": {**before, "strategy.tau": had, RATE: 0.2}}
    assert file.read_text().startswith("# Made by this command")
    assert "\n# --odd\n" in file.read_text()


def replace_experiment(config: Config) -> Config:
    return config.model_copy(update={"experiment": "cifar10"})


def test_a_metric_of_which_less_is_better_is_minimised(tmp_path: Path) -> None:
    found = search(tmp_path, grid={RATE: [0.1, 0.2]})
    found.check()
    for rate in (0.1, 0.2):
        for seed in found.seeds:
            trial = Trial(found.bases["fedavg"].changed({RATE: rate, "seed": seed}), {RATE: rate})
            row = replace(record(1, None), scores={"rmse": rate}, metric="rmse", lower_is_better=True)
            found.book.add(result_of(trial, [row], 1.0))
    made(found, lambda trial: pytest.fail("it was made again"))
    assert found.candidates("fedavg")[0].settings == {RATE: 0.1}
    assert json.loads(found.book.path.read_text().splitlines()[0])["metric"] == "rmse"
