"""Worker processes: the same bits as one client after the other, whatever happens to the workers, and nothing
left behind.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import HEROES
from patience import patience
from representatives import representatives
from torch import nn

import heroes
from heroes.client.training import Trainer
from heroes.data import FederatedData
from heroes.errors import ConfigError, TrainingError
from heroes.federation import Federation, Policy, Stop
from heroes.messages import Lost, Task
from heroes.rounds import run, run_round
from heroes.slices.cuts import cut_out
from heroes.strategies.registry import BUILT_IN
from heroes.transport.engines.in_process import InProcessEngine
from heroes.transport.engines.processes import ProcessEngine


@contextmanager
def processes(
    federation: Federation, workers: int = 2, data: FederatedData | None = None, **options: Any
) -> Iterator[Federation]:
    """The same federation with its clients in worker processes; none of them is left at the end."""
    here = federation.engine
    engine = ProcessEngine(here.trainer, data or here.data, 20, workers=workers, **options)
    try:
        yield replace(federation, engine=engine)
    finally:
        pids = pids_of(engine)
        engine.close()
        assert not any(exists(pid) for pid in pids)
        assert engine.pool.workers == []


def pids_of(engine: ProcessEngine) -> list[int]:
    return [worker.process.pid for worker in engine.pool.workers]


def exists(pid: int) -> bool:
    """Also a zombie exists."""
    return Path(f"/proc/{pid}").exists()


def wait_until(true: Callable[[], bool], seconds: float = 200.0) -> None:
    deadline = time.monotonic() + patience(seconds)
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_process(federation: Federation) -> Federation:
    return replace(federation, engine=InProcessEngine(federation.engine.trainer, federation.engine.data, 20))


def same(one: list[Any], two: list[Any]) -> None:
    """Records and models of two runs, to the bit."""
    assert [entry for _, entry in one] == [entry for _, entry in two]
    for (first, _), (second, _) in zip(one, two, strict=True):
        assert first.memory == second.memory
        assert first.tensors.keys() == second.tensors.keys()
        assert all(torch.equal(value, second.tensors[name]) for name, value in first.tensors.items())


FAST = [*((name, 2) for name in representatives()), *product(("heroes", "fedavg"), (1, 3))]
EVERY = [*((name, 2) for name in BUILT_IN), *product(representatives(), (1, 3))]


@pytest.mark.parametrize(
    ("name", "workers"),
    [*FAST, *(pytest.param(*each, marks=pytest.mark.slow) for each in EVERY if each not in FAST)],
)
def test_every_strategy_gives_the_same_bits_with_any_number_of_workers(world, name, workers):
    expected = list(run(in_process(world.federation(world.strategy(name), cohort=7)), Stop(3)))
    with processes(world.federation(world.strategy(name), cohort=7), workers) as federation:
        same(list(run(federation, Stop(3))), expected)


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", ["heroes", "fedavg"])
def test_exchange_in_fewer_bits_gives_the_same_bits_too(world, name, feedback):
    def federation():
        return world.federation(
            world.strategy(name), cohort=7, up_bits=4, down_bits=8, error_feedback=feedback
        )

    expected = list(run(in_process(federation()), Stop(3)))
    with processes(federation()) as other:
        steps = list(run(other, Stop(3)))
    same(steps, expected)
    kept, left = steps[-1][0].residuals, expected[-1][0].residuals
    assert (list(kept), bool(kept)) == (list(left), feedback)
    assert all(torch.equal(kept[c][n], value) for c in kept for n, value in left[c].items())


def test_diverged_clients_are_recorded_in_the_same_order(world):
    def diverging():
        wild = world.federation(
            world.strategy("heroes", learning_rate=heroes.planning.loads.LearningRate(1e30)), cohort=8
        )
        return replace(wild, policy=Policy(at_least=0))

    (_, expected), *_ = run(in_process(diverging()), Stop(1))
    assert len(expected.missing) == 8
    with processes(diverging(), 3) as federation:
        (_, entry), *_ = run(federation, Stop(1))
    assert entry.missing == expected.missing


def test_workers_do_not_hang_after_the_parent_used_many_threads(world):
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        big = torch.randn(600, 600, requires_grad=True)
        (big @ big).relu().sum().backward()
        nn.Conv2d(8, 16, 3)(torch.randn(8, 8, 32, 32)).sum().backward()
        expected = list(run(in_process(world.federation()), Stop(2)))
        with processes(world.federation()) as federation:
            same(list(run(federation, Stop(2))), expected)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


# what can happen to a client


@dataclass(frozen=True)
class Mishap:
    """A transform to which something happens at marked examples, when they are trained on."""

    what: Callable[[], object]

    def __call__(self, stored, rng):
        if rng is not None and bool((stored == 99.0).any()):
            self.what()
        return stored


def with_mishap(data: FederatedData, client: int, what: Callable[[], object]) -> FederatedData:
    inputs = data.train.inputs.clone()
    inputs[torch.from_numpy(data.shares[client])] = 99.0
    return FederatedData(replace(data.train, inputs=inputs, transform=Mishap(what)), data.test, data.shares)


def failing() -> None:
    raise ValueError("no\n  such thing")


def crashing() -> None:
    faulthandler.disable()  # pytest's; it would print where
    os.kill(os.getpid(), signal.SIGSEGV)


def talking_nonsense() -> None:
    """Write over the worker's own connection, as a worker that has lost its mind would."""
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if os.readlink(handle).startswith("socket:"):
                os.write(int(handle.name), b"\xff" * 8)
    time.sleep(600)


MISHAPS = {
    "its worker process was ended: a frame arrived whose header claims 18446744073709551615 bytes; "
    "at most 67108864 are taken": talking_nonsense,
    "its worker process was ended by SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "its worker process was ended by SIGSEGV": crashing,
    "its worker process ended with exit code 3": lambda: os._exit(3),
    "took longer than 1.5 seconds": lambda: time.sleep(600),
    "ValueError: no such thing": failing,
}


@pytest.mark.parametrize("reason", MISHAPS)
def test_a_client_is_lost_with_a_reason_the_others_count_and_the_run_goes_on(world, reason):
    federation = world.federation(clients=8, cohort=8)
    unlucky = 5
    broken = with_mishap(federation.engine.data, unlucky, MISHAPS[reason])
    reference = with_mishap(federation.engine.data, unlucky, failing)
    expected = list(
        run(replace(federation, engine=InProcessEngine(federation.engine.trainer, reference, 20)), Stop(2))
    )
    with processes(federation, 2, broken, task_seconds=1.5) as other:
        found = list(run(other, Stop(2)))
        assert [entry.missing for _, entry in found] == [(Lost(unlucky, reason),)] * 2
        assert len(pids_of(other.engine)) == 2
    same([(s, replace(e, missing=())) for s, e in found], [(s, replace(e, missing=())) for s, e in expected])


def test_a_worker_that_dies_while_it_is_idle_costs_nobody(world):
    expected = list(run(in_process(world.federation()), Stop(3)))
    with processes(world.federation()) as federation:
        found = []
        for state_and_entry in run(federation, Stop(3)):
            found.append(state_and_entry)
            for worker in federation.engine.pool.workers:
                os.kill(worker.process.pid, signal.SIGKILL)
                wait_until(lambda process=worker.process: not process.is_alive())
    same(found, expected)


def test_a_stopped_worker_is_given_up_and_replaced(world):
    federation = world.federation(clients=6, cohort=6)
    slow = with_mishap(federation.engine.data, 2, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    with processes(federation, 2, slow, task_seconds=1.0) as other:
        _, entry = run_round(other, federation.strategy.begin(0))
    assert entry.missing == (Lost(2, "took longer than 1 seconds"),)


def test_workers_that_die_at_start_up_end_the_run_with_a_sentence(world):
    dying = [True]
    os.register_at_fork(after_in_child=lambda: os._exit(7) if dying else None)
    with processes(world.federation()) as federation:
        with pytest.raises(TrainingError, match="do not start; the last ended with exit code 7"):
            run_round(federation, federation.strategy.begin(0))
        dying.clear()
        _, entry = run_round(federation, federation.strategy.begin(0))
        assert entry.missing == ()


def test_a_daemon_says_that_it_cannot_have_workers(world):
    def try_it() -> None:
        try:
            ProcessEngine(Trainer(world.family(), heroes.client.training.LocalSettings()), world.data())
        except ConfigError as error:
            os._exit(0 if "in_process" in str(error) else 1)
        os._exit(2)

    process = multiprocessing.get_context("fork").Process(target=try_it, daemon=True)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    process.close()


def test_an_abandoned_round_does_not_disturb_the_next(world):
    with processes(world.federation()) as federation:
        state, strategy = federation.strategy.begin(0), federation.strategy
        plan = [world.assignment(client) for client in range(8)]
        half = federation.engine.run(
            plan, lambda a: Task(a, cut_out(state.tensors, strategy.cut(a.selection)), a.client)
        )
        next(half)
        half.close()
        found = list(run(federation, Stop(2)))
    same(found, list(run(in_process(world.federation()), Stop(2))))


# how far ahead, and testing


def test_a_slow_client_does_not_let_updates_pile_up(world):
    federation = world.federation(clients=60, cohort=60)
    slow = with_mishap(federation.engine.data, 0, lambda: time.sleep(0.5))
    with processes(federation, 2, slow) as other:
        state, strategy = federation.strategy.begin(0), federation.strategy
        plan = [world.assignment(client) for client in range(60)]
        made = []

        def make(assignment):
            made.append(assignment.client)
            return Task(assignment, cut_out(state.tensors, strategy.cut(assignment.selection)), 1)

        answers = other.engine.run(plan, make)
        clients = []
        for update in answers:
            clients.append(update.client)
            assert len(made) - len(clients) <= 4  # two at each worker
    assert sorted(clients) == list(range(60))
    assert clients.index(0) <= 2 * 16 + 4


def test_the_longest_goes_first(world):
    with processes(world.federation(), 1) as federation:
        state, strategy = federation.strategy.begin(0), federation.strategy
        plan = [world.assignment(client, tau=tau) for client, tau in enumerate([2, 9, 4, 7])]
        task = lambda a: Task(a, cut_out(state.tensors, strategy.cut(a.selection)), 1)  # noqa: E731
        assert [update.client for update in federation.engine.run(plan, task)] == [1, 3, 2, 0]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_a_score_is_the_same_bits_with_any_number_of_workers(world, workers):
    federation = in_process(world.federation())
    state = federation.strategy.begin(5)
    with processes(federation, workers) as other:
        begun = {width: other.score(state, width) for width in (1, 2, 3)}  # at the same time
        for width in (3, 1, 2):
            assert begun[width]() == federation.score(state, width)()


def test_idle_workers_test_beside_the_round_and_find_the_same(world):
    federation = in_process(world.federation())
    state = federation.strategy.begin(5)
    with processes(federation, 2) as other:
        score = other.score(state, 3)
        run_round(other, state)
        other.engine.pool.do = None  # nothing is left to do
        assert score() == federation.score(state, 3)()


def test_a_round_that_was_broken_off_leaves_no_answers_for_the_test_after_it(world):
    federation = in_process(world.federation())
    state = federation.strategy.begin(5)
    with processes(federation, 2) as other:
        task = lambda a: Task(a, cut_out(state.tensors, other.strategy.cut(a.selection)), 1)  # noqa: E731
        plan = [world.assignment(client, tau=5) for client in range(4)]
        broken_off = other.engine.run(plan, task)
        next(
            broken_off
        )  # and an interrupt before the next: its workers train on, and it is held by a traceback
        score = other.score(state, 3)
        assert score() == federation.score(state, 3)()
        again = other.engine.run(plan, task)
        first = next(again)
        broken_off.close()  # when it is given up at last, it ends nobody who works for another
        assert {first.client, *(update.client for update in again)} == {0, 1, 2, 3}


def test_a_test_that_fails_says_why_and_a_killed_worker_only_delays_it(world, tmp_path):
    federation = in_process(world.federation())
    state = federation.strategy.begin(0)
    mark = tmp_path / "killed"

    def kill_once(stored, rng):
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return stored
        os.kill(os.getpid(), signal.SIGKILL)

    data = federation.engine.data
    with processes(federation, 2, replace(data, test=replace(data.test, transform=kill_once))) as other:
        assert other.score(state, 3)() == federation.score(state, 3)()
        assert mark.exists()
    fails = replace(data.test, transform=lambda stored, rng: failing())
    with (
        processes(federation, 2, replace(data, test=fails)) as other,
        pytest.raises(TrainingError, match="no such thing"),
    ):
        other.score(state, 3)()


# spawned workers


SMALL = {"federation.cohort": 3, "training.probes": 0, "engine.workers": 2, "engine.start": "spawn"}


def test_spawned_workers_give_the_same_bits_and_leave_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = heroes.recipes.digits(rounds=1).changed(SMALL)
    there = heroes.run(config)
    here = heroes.run(config.changed({"engine.name": "in_process"}))
    assert there.records == here.records
    assert all(torch.equal(value, there.state.tensors[name]) for name, value in here.state.tensors.items())
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_imported_is_refused_before_anything_starts():
    config = heroes.recipes.digits(rounds=1).changed(SMALL)
    with pytest.raises(ConfigError, match=r"must be importable.*engine\.start = 'fork'"):
        heroes.run(config, model=lambda width: heroes.models.MODELS["digits_cnn"](width))


def test_a_module_that_fails_in_the_worker_is_named(tmp_path, monkeypatch):
    (tmp_path / "moody_model.py").write_text(
        "import multiprocessing\nfrom heroes.models.digits_cnn import build as digits\n"
        "if multiprocessing.parent_process(): raise RuntimeError('not in a worker')\n"
        "def build(width): return digits(width)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import moody_model  # type: ignore[import-not-found]

    with pytest.raises(TrainingError, match="could not start: RuntimeError: not in a worker"):
        heroes.run(heroes.recipes.digits(rounds=1).changed(SMALL), model=moody_model.build)


# nothing is left behind


def test_a_forgotten_engine_ends_its_workers(world):
    federation = world.federation()
    other = replace(
        federation, engine=ProcessEngine(federation.engine.trainer, federation.engine.data, workers=2)
    )
    run_round(other, federation.strategy.begin(0))
    pids = pids_of(other.engine)
    assert len(pids) == 2
    del other
    gc.collect()
    assert not any(exists(pid) for pid in pids)


@contextmanager
def started(folder: Path, *changes: str) -> Iterator[subprocess.Popen[str]]:
    """A long run in a session of its own, once its first round is done; whatever is left of it is ended by
    its id.
    """
    quick = (
        "engine.workers=2",
        "federation.cohort=3",
        "training.probes=0",
        "evaluation.every=5000",
        *changes,
    )
    settings = [word for change in quick for word in ("--set", change)]
    process = subprocess.Popen(
        [*HEROES, "run", "digits", "--rounds", "5000", "--out", str(folder / "run"), *settings],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
    )
    (folder / "tmp").mkdir()
    try:
        records = folder / "run" / "records.jsonl"
        wait_until(lambda: records.exists() and records.read_text().count("\n") >= 1)
        yield process
    finally:
        for pid in session_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def session_of(leader: int) -> list[int]:
    """The processes of a session, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader:
                found.append(int(entry.name))
    return found


def test_ctrl_c_ends_the_run_and_its_workers_without_a_traceback(tmp_path):
    with started(tmp_path) as process:
        assert len(session_of(process.pid)) == 3
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of them
        _, said = process.communicate(timeout=patience(240))
        assert process.returncode == 130
        assert "Traceback" not in said
        wait_until(lambda: session_of(process.pid) == [])
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_end_with_a_parent_that_is_killed_and_leave_no_file(tmp_path, start):
    with started(tmp_path, f"engine.start={start}") as process:
        assert len(session_of(process.pid)) >= 3
        assert bool(list((tmp_path / "tmp").iterdir())) == (start == "spawn")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        wait_until(lambda: session_of(process.pid) == [], 20)
    assert list((tmp_path / "tmp").iterdir()) == []


DEVICES = tuple(torch.device("cpu", number) for number in range(2))  # to a pool as different as two GPUs


@pytest.mark.parametrize(
    ("workers", "start"), [(2, "fork"), (3, "fork"), pytest.param(2, "spawn", marks=pytest.mark.slow)]
)
def test_workers_are_shared_out_over_devices_and_so_are_those_that_replace_them(world, workers, start):
    federation = world.federation()
    alone, _ = run_round(federation, federation.strategy.begin(0))
    with processes(federation, workers, devices=DEVICES, start=start) as shared:
        pool = shared.engine.pool
        state, _ = run_round(shared, shared.strategy.begin(0))
        assert [w.device.index for w in pool.workers] == [0, 1, 0][:workers]
        pool.workers[0].process.kill()
        wait_until(lambda: not pool.workers[0].process.is_alive())
        run_round(shared, state)
        assert sorted(w.device.index for w in pool.workers) == sorted([0, 1, 0][:workers])
    assert all(torch.equal(alone.tensors[name], value) for name, value in state.tensors.items())


def test_one_worker_for_each_gpu_and_one_for_each_core_without_any(world):
    here = world.federation().engine
    gpus = [torch.device("cuda", number) for number in range(3)]
    assert ProcessEngine(here.trainer, here.data, devices=gpus, start="fork").pool.size == 3
    assert ProcessEngine(here.trainer, here.data, devices=gpus, workers=6, start="fork").pool.size == 6
    assert ProcessEngine(here.trainer, here.data).pool.size == len(os.sched_getaffinity(0))
