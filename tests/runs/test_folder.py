"""A run folder holds what a run earned, whole, and is never overwritten by accident."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import heroes
from heroes.errors import RunFolderError
from heroes.messages import RoundRecord, plain
from heroes.report import read_config, read_records
from heroes.runs.folder import CHECKPOINTS, FILES, LOCK, RunFolder, held
from heroes.settings.config import parse, to_toml


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> heroes.Run:
    folder = tmp_path_factory.mktemp("runs") / "deep" / "run"
    return heroes.run(heroes.recipes.digits(rounds=2, seed=3), out=folder)


def test_a_run_leaves_its_four_files_and_its_last_checkpoints(finished: heroes.Run) -> None:
    assert finished.folder is not None
    assert sorted(path.name for path in finished.folder.iterdir()) == sorted([*FILES, CHECKPOINTS, LOCK])
    assert len(list((finished.folder / CHECKPOINTS).iterdir())) == 2


def test_the_written_configuration_repeats_the_run(finished: heroes.Run) -> None:
    assert finished.folder is not None
    again = heroes.run(parse(read_config(finished.folder)))
    assert [plain(record) for record in again.records] == [plain(record) for record in finished.records]


def test_the_written_model_is_the_global_tensors(finished: heroes.Run) -> None:
    assert finished.folder is not None
    written = load_file(finished.folder / "model.safetensors")
    assert written.keys() == finished.state.tensors.keys()
    served = finished.state.averaged  # the recipe hands out an average of models
    assert all(bool((written[name] == tensor).all()) for name, tensor in served.items())


def test_a_record_holds_everything_a_reader_needs(finished: heroes.Run) -> None:
    assert finished.folder is not None
    rows = read_records(finished.folder).rows
    assert [row.round for row in rows] == [1, 2]
    row = rows[-1]
    assert row.seconds == sum(each.duration for each in rows)
    assert row.scores == row.scores_by_width[4] == {"accuracy": row.score}
    assert set(row.scores_by_width) == {1, 2, 3, 4}
    assert row.stopped == "rounds"
    assert {"counters", "counter_variance", "estimates", "reducing_error", "bound"} <= row.facts.keys()
    assert all(len(client.pieces) == client.width**2 for client in row.clients)


def test_the_environment_is_written_down(finished: heroes.Run) -> None:
    assert finished.folder is not None
    environment = json.loads((finished.folder / "environment.json").read_text())
    assert environment["torch"].startswith("2.")
    assert environment["python"].startswith("3.")
    assert environment["heroes-fl"] == heroes.__version__


def test_a_folder_that_holds_a_run_is_refused_unless_told(tmp_path: Path) -> None:
    config = heroes.recipes.digits(rounds=1)
    RunFolder(tmp_path, to_toml(config)).close()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"already holds a run.*--overwrite"):
        RunFolder(tmp_path, to_toml(config))
    RunFolder(tmp_path, to_toml(config), overwrite=True).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunFolderError, match=r"cannot write to .*file/run"):
        RunFolder(tmp_path / "file" / "run", "")


def test_an_interrupted_run_keeps_its_rounds_and_its_model(tmp_path: Path) -> None:
    def stop_after_two(record: RoundRecord) -> None:
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heroes.run(heroes.recipes.digits(rounds=9), out=tmp_path, on_round=stop_after_two)
    assert len(read_records(tmp_path).rows) == 2
    assert load_file(tmp_path / "model.safetensors")


HOLDER = """
import sys, time
from pathlib import Path
from heroes.runs.folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_do_not_write_into_one_folder_and_the_lock_goes_with_its_holder(tmp_path: Path) -> None:
    config = heroes.recipes.digits(rounds=1)
    first = heroes.run(config, out=tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunFolderError, match="another process writes a run into"):
            heroes.run(config, out=tmp_path, overwrite=True)
        with pytest.raises(RunFolderError, match="another process writes a run into"):
            heroes.resume(tmp_path, {"federation.rounds": 2})
        assert (tmp_path / "records.jsonl").read_bytes() == before
        holder.kill()
        with held(tmp_path, patience=10):
            pass
    assert heroes.resume(tmp_path, {"federation.rounds": 2}).records[0].seconds == first.records[0].seconds


INHERITING = """
import multiprocessing, os, sys, time
from pathlib import Path
from heroes.runs.folder import held
with held(Path(sys.argv[1])):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    child.start()
    print(child.pid, flush=True)
    os._exit(0)
"""


def test_the_lock_is_not_inherited_and_may_be_taken_twice_by_one_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INHERITING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert parent.wait() == 0
            with held(tmp_path, patience=10.0), held(tmp_path):  # on a busy machine the child may still begin
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_the_lock_is_the_same_as_on_every_system(tmp_path: Path) -> None:
    code = "import sys, filelock\nwith filelock.FileLock(sys.argv[1]): print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(RunFolderError, match="another process writes"), held(tmp_path):
            pass
        holder.communicate()
