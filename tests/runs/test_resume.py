"""A run that was stopped in any way and goes on ends with the same bits as one that was never stopped."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import command_line
import pytest
from patience import patience
from representatives import representatives, steps

import heroes
from heroes.cli.start import INTERRUPTED
from heroes.errors import ConfigError, RunFolderError
from heroes.report import Spread, compare, load_run
from heroes.runs.folder import CHECKPOINTS
from heroes.settings.recipes import recipe
from heroes.strategies.registry import BUILT_IN

SMALL = {
    "federation.clients": 12,
    "federation.cohort": 4,
    "engine.name": "in_process",
    "federation.rounds": 6,
}
SMALL |= {"training.probe_every": 2, "evaluation.every": 2}


class StoppedError(Exception):
    """Raised by a listener in the middle of a run."""


def stop_after(rounds):
    def listen(record):
        if record.round == rounds:
            raise StoppedError

    return listen


def files(folder: Path) -> dict[str, bytes]:
    """What must be the same bits."""
    return {
        name: (folder / name).read_bytes() for name in ("records.jsonl", "model.safetensors", "config.toml")
    }


def config(strategy="heroes", **changes):
    return recipe("digits", strategy).changed(SMALL | changes)


@pytest.mark.parametrize(
    ("bits", "strategy"),
    [
        *((32, name) for name in BUILT_IN),
        *(
            pytest.param(4, name, marks=() if name in ("heroes", "fedavg") else pytest.mark.slow)
            for name in representatives()
        ),
    ],
)
def test_a_run_that_goes_on_ends_with_the_same_bits(tmp_path, strategy, bits):
    feedback = BUILT_IN[strategy].requires.get("exchange.error_feedback", bits < 32)
    tiny = {"federation.clients": 6, "federation.cohort": 3, "federation.rounds": 5, "model.max_width": 2}
    tiny |= {"data.test_limit": 40, "exchange.up_bits": bits, "exchange.error_feedback": feedback}
    chosen = config(strategy, **tiny, **steps(strategy, 3))
    heroes.run(chosen, out=tmp_path / "whole")
    with pytest.raises(StoppedError):
        heroes.run(chosen, out=tmp_path / "cut", on_round=stop_after(3))
    finished = heroes.resume(tmp_path / "cut")
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    assert [record.round for record in finished.records] == [1, 2, 3, 4, 5]


TARGET = 0.4


@pytest.mark.parametrize("sample", [pytest.param(None, marks=pytest.mark.slow), 100])
def test_a_run_that_stops_at_a_target_stops_there_after_any_break_and_reports_agree(tmp_path, sample):
    changes = {"federation.rounds": 40, "federation.target_accuracy": TARGET, "evaluation.every": 1}
    chosen = config(**changes).changed({"evaluation.sample": sample})
    whole = heroes.run(chosen, out=tmp_path / "whole")
    last = whole.records[-1]
    assert last.stopped == "target accuracy"
    found = compare([load_run(tmp_path / "whole")], targets=[TARGET])
    assert found.find("heroes", "rounds to accuracy", TARGET) == Spread((float(last.round),))
    assert found.find("heroes", "seconds to accuracy", TARGET) == Spread((last.seconds,))
    for moment in (last.round - 2, last.round - 1):
        cut = tmp_path / f"cut{moment}"
        with pytest.raises(StoppedError):
            heroes.run(chosen, out=cut, on_round=stop_after(moment))
        heroes.resume(cut)
        assert files(cut) == files(tmp_path / "whole")
    with pytest.raises(ConfigError, match=r"is finished \(target accuracy"):
        heroes.resume(tmp_path / "whole")


def test_a_run_that_stops_because_it_gets_no_better_does_so_after_a_break_and_goes_on_with_more_patience(
    tmp_path,
):
    """One rate is so high that the model is thrown about: tests become no better soon."""
    chosen = config(
        **{
            "federation.rounds": 40,
            "federation.patience": 4,
            "evaluation.every": 1,
            "training.learning_rate": 5.0,
        }
    )
    last = heroes.run(chosen, out=tmp_path / "whole").records[-1]
    assert last.stopped == "no better for 4 tests"
    with pytest.raises(StoppedError):
        heroes.run(chosen, out=tmp_path / "cut", on_round=stop_after(last.round - 1))
    heroes.resume(tmp_path / "cut")
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    with pytest.raises(ConfigError, match=r"is finished \(no better for 4 tests"):
        heroes.resume(tmp_path / "whole")
    more = heroes.resume(
        tmp_path / "whole", {"federation.patience": None, "federation.rounds": last.round + 1}
    )
    assert (more.records[-1].round, more.records[-1].stopped) == (last.round + 1, "rounds")


@pytest.mark.parametrize("faults", [pytest.param({}, marks=pytest.mark.slow), {"faults.dropout": 0.2}])
def test_a_sample_changes_what_is_tested_during_a_run_and_nothing_else(faults):
    faults = {**faults, **steps("heroes", 5)}
    plain = heroes.run(config(**faults))
    few = {"evaluation.sample": 64, "evaluation.batch_size": 25}
    sampled = heroes.run(config(**faults).changed(few))
    other = heroes.run(config(**faults, **few).changed({"engine.name": "processes", "engine.workers": 2}))
    assert sampled.records == other.records
    scores = [record.accuracy for record in sampled.records if record.accuracy is not None]
    assert [score * 64 for score in scores] == pytest.approx([round(score * 64) for score in scores])
    assert scores != [record.accuracy for record in plain.records if record.accuracy is not None]
    assert sampled.records[-1].score_by_width == plain.records[-1].score_by_width
    assert sampled.summary().score == plain.summary().score
    assert all(sampled.state.tensors[name].equal(value) for name, value in plain.state.tensors.items())
    alone = heroes.run(config(**faults, **few).changed({"evaluation.every_width": False}))
    assert alone.records[-1].score_by_width == {4: plain.summary().score}


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_worker_processes_go_on_with_the_same_bits_too(tmp_path, workers):
    changes = {"engine.name": "processes", "engine.workers": workers, "checkpoint.every": 2}
    changes |= steps("heroes", 5)
    heroes.run(config(**changes), out=tmp_path / "whole")
    with pytest.raises(StoppedError):
        heroes.run(config(**changes), out=tmp_path / "cut", on_round=stop_after(5))
    assert [path.name for path in sorted((tmp_path / "cut" / CHECKPOINTS).iterdir())] == [
        "round-0000002.safetensors",
        "round-0000004.safetensors",
    ]
    heroes.resume(tmp_path / "cut")
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_a_finished_run_goes_on_only_with_more_rounds(tmp_path):
    heroes.run(config(**steps("heroes", 5)), out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"is finished \(rounds, 6 rounds\)"):
        heroes.resume(tmp_path / "run")
    longer = heroes.resume(tmp_path / "run", {"federation.rounds": 8})
    assert [record.stopped for record in longer.records] == [None] * 7 + ["rounds"]
    assert longer.records[5].scores_by_width == {}
    assert len(heroes.report.load_run(tmp_path / "run").rows) == 8


@pytest.fixture(scope="module")
def one_round(tmp_path_factory):
    """A finished run whose folder nobody may change."""
    folder = tmp_path_factory.mktemp("one") / "run"
    heroes.run(config(**{"federation.rounds": 1}), out=folder)
    return folder


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 4), ("training.momentum", 0.1), ("strategy.blocks", "free"), ("strategy.name", "fedavg")],
)
def test_a_change_of_the_past_is_refused_by_name(one_round, key, value):
    before = files(one_round)
    with pytest.raises(ConfigError, match=rf"^({key}|strategy\.\w+) cannot change when a run goes on"):
        heroes.resume(one_round, {key: value, "federation.rounds": 2})
    assert files(one_round) == before


def test_a_run_of_ones_own_model_needs_it_again(one_round, tmp_path):
    with pytest.raises(ConfigError, match="was not run with your own model"):
        heroes.resume(one_round, model=lambda width: None)
    with pytest.raises(RunFolderError, match="is not a run folder"):
        heroes.resume(tmp_path / "elsewhere")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command_line.HEROES, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


QUICK = [f"--set={key}={value}" for key, value in SMALL.items()]


def wait_for_rounds(folder: Path, rounds: int) -> None:
    until = time.monotonic() + patience(240)
    while time.monotonic() < until:
        if (folder / "records.jsonl").exists() and (folder / "records.jsonl").read_bytes().count(
            b"\n"
        ) >= rounds:
            return
        time.sleep(0.01)
    pytest.fail(f"no {rounds} rounds within {patience(240):g} seconds")


def test_ctrl_c_says_how_to_go_on_and_the_command_does(tmp_path):
    folder = tmp_path / "run"
    longer = ["--set", "federation.rounds=400"]
    running = start("run", "digits", "--out", str(folder), *QUICK, *longer)
    wait_for_rounds(folder, 3)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=patience(240))
    assert running.returncode == INTERRUPTED
    assert f"interrupted; to go on: heroes resume {folder}" in said
    done = (folder / "records.jsonl").read_bytes().count(b"\n")
    resumed = command_line.heroes("resume", str(folder), "--rounds", str(done + 2), "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert f'"rounds": {done + 2}' in resumed.stdout


FULL_DISK = """
set -u
mount -t tmpfs -o size=260k none "$1"
"$2" -m heroes.cli run digits --out "$1/run" $3
echo "ended with $?"
df --output=avail "$1" | tail -n 1
ls "$1/run/checkpoints"
mount -o remount,size=20m "$1"
"$2" -m heroes.cli resume "$1/run" --quiet || exit 3
cp -r "$1/run" "$4"
"""


def own_mounts() -> bool:
    """Whether this system lets us mount a disk of our own that nobody else sees."""
    there = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False
    )
    return there.returncode == 0


@pytest.mark.timeout(400)
@pytest.mark.skipif(
    sys.platform != "linux" or not own_mounts(), reason="needs a Linux that allows private mounts"
)
def test_a_run_on_a_disk_that_fills_up_says_so_keeps_its_checkpoint_and_goes_on_when_there_is_room(tmp_path):
    (tmp_path / "disk").mkdir()
    quick = {"federation.rounds": 30, **steps("heroes", 2)}
    settings = " ".join(f"--set {key}={value}" for key, value in {**SMALL, **quick}.items())
    script = [
        "sh",
        "-c",
        FULL_DISK,
        "sh",
        str(tmp_path / "disk"),
        sys.executable,
        settings,
        str(tmp_path / "saved"),
    ]
    found = subprocess.run(
        ["unshare", "--map-root-user", "--mount", *script],
        capture_output=True,
        text=True,
        timeout=patience(380),
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert "ended with 2" in found.stdout
    assert "round-" in found.stdout
    assert "No space left on device" in found.stderr
    assert "Traceback" not in found.stderr
    heroes.run(config(**quick), out=tmp_path / "whole")
    assert files(tmp_path / "saved") == files(tmp_path / "whole")


def killed_at_random(folder: Path, kills: int, chance: random.Random, rounds: int) -> None:
    """Run to the end, with so many SIGKILLs on the way, each some time after the process began to write."""
    running = start("run", "digits", "--out", str(folder), *QUICK, "--set", f"federation.rounds={rounds}")
    for _ in range(kills):
        seen = (
            (folder / "records.jsonl").read_bytes().count(b"\n") if (folder / "records.jsonl").exists() else 0
        )
        wait_for_rounds(folder, min(seen + 1, rounds))
        time.sleep(chance.uniform(0.0, 0.3))
        running.kill()
        running.communicate()
        if running.returncode == 0:
            return
        running = start("resume", str(folder))
    _, said = running.communicate(timeout=600)
    assert running.returncode == 0 or "is finished" in said, said


def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    heroes.run(config(**{"federation.rounds": 12}), out=tmp_path / "whole")
    killed_at_random(tmp_path / "cut", 2, random.Random(0), 12)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_kills_change_no_bit(tmp_path):
    heroes.run(config(**{"federation.rounds": 150}), out=tmp_path / "whole")
    killed_at_random(tmp_path / "cut", 55, random.Random(int(os.environ.get("HEROES_KILL_SEED", "1"))), 150)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
