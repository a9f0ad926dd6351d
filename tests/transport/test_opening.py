"""Engines open from plain parts and close whatever happens; an engine of one's own does the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import heroes
from heroes.errors import ConfigError, TrainingError
from heroes.fleet.faults import Faults
from heroes.rounds import run_round
from heroes.settings.sections import EngineConfig
from heroes.transport.engines import in_process
from heroes.transport.engines.faulty import FaultyEngine
from heroes.transport.engines.in_process import FunctionEngine, InProcessEngine
from heroes.transport.opening import Parts, room

SMALL = {"federation.clients": 8, "federation.cohort": 3, "federation.rounds": 2, "training.device": "cpu"}


class Keeping(InProcessEngine):
    """An engine that notes what is handed out, and whether it is open."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.trainer, parts.data, parts.batch_size)
        self.parts = parts
        self.open = True
        self.handed = {}

    def hand_out(self, tensors_of_width, widths):
        assert self.open
        self.handed |= {width: tensors_of_width(width) for width in widths}


class Opener:
    """Opens engines and keeps them for a look at them afterwards."""

    def __init__(self) -> None:
        self.engines: list[Keeping] = []

    @contextmanager
    def __call__(self, parts: Parts) -> Iterator[Keeping]:
        engine = Keeping(parts)
        self.engines.append(engine)
        try:
            yield engine
        finally:
            engine.open = False


def test_every_engine_that_can_be_configured_has_a_room():
    for name in get_args(EngineConfig.model_fields["name"].annotation):
        if name != "mpi":  # opens only where there are ranks
            with room(name, lambda text: pytest.fail("nobody follows")) as opener:
                assert opener.__module__.startswith(f"heroes.transport.engines.{name}")


def test_a_run_opens_its_engine_hands_out_the_model_and_closes(tmp_path):
    opener, config = Opener(), heroes.recipes.digits().changed(SMALL)
    run = heroes.run(config, engine=opener)
    (engine,) = opener.engines
    assert not engine.open
    assert list(engine.handed) == [1, 2, 3, 4] == list(engine.parts.widths)
    assert engine.handed[1].keys() == run.state.tensors.keys()
    assert run.records == heroes.run(config.changed({"engine.name": "in_process"})).records


def test_an_engine_of_ones_own_that_cannot_test_on_a_sample_is_refused_only_if_it_is_asked_to():
    class Older(Keeping):
        def score(self, tensors, width):
            return super().score(tensors, width)

    @contextmanager
    def opened(parts):
        yield Older(parts)

    config = heroes.recipes.digits().changed(SMALL)
    assert heroes.run(config, engine=opened).records
    with pytest.raises(ConfigError, match=r"evaluation.sample is 50, but score\(\) of your engine has no"):
        heroes.run(config.changed({"evaluation.sample": 50}), engine=opened)


def test_an_engine_is_closed_when_the_run_fails_and_a_resumed_run_opens_another(tmp_path):
    class OutOfPaperError(Exception): ...

    def fail(record):
        raise OutOfPaperError

    opener, config = Opener(), heroes.recipes.digits().changed(SMALL)
    with pytest.raises(OutOfPaperError):
        heroes.run(config, engine=opener, out=tmp_path / "run", on_round=fail)
    resumed = heroes.resume(tmp_path / "run", engine=opener)
    assert [record.round for record in resumed.records] == [1, 2]
    first, second = opener.engines
    assert (first.open, second.open) == (False, False)
    assert (list(first.handed), list(second.handed)) == ([], [1, 2, 3, 4])


def test_an_engine_that_does_not_open_is_refused():
    with pytest.raises(
        ConfigError, match=r"engine is 'mpi'; give a function .* or name one with engine\.name"
    ):
        heroes.run(heroes.recipes.digits().changed(SMALL), engine="mpi")


def test_plain_parts_are_those_of_the_configuration():
    opener = Opener()
    chosen = {"server.oversample": 1.5, "exchange.down_bits": 8, "engine.task_seconds": 7.0}
    kept = {"engine.model_out": "{rank}.safetensors", "engine.model_width": 2}
    heroes.run(heroes.recipes.digits().changed(SMALL | chosen | kept), engine=opener)
    parts = opener.engines[0].parts
    assert (parts.cohort, parts.asked, parts.down_bits, parts.task_seconds) == (3, 5, 8, 7.0)
    assert (parts.model_out, parts.model_width) == ("{rank}.safetensors", 2)
    assert parts.clock is parts.start is None
    assert "task_seconds = 7.0" in parts.config
    trainer, data = parts.prepare(parts.config, 0)
    assert (len(data.shares), trainer.settings) == (8, parts.trainer.settings)


def test_what_is_the_users_own_cannot_be_prepared_elsewhere(world):
    opener, config = Opener(), heroes.recipes.digits().changed(SMALL | {"model.max_width": 3})
    heroes.run(config, model=world.family().build, data=world.data(8), engine=opener)
    assert opener.engines[0].parts.prepare is None


def test_workers_end_with_the_context_also_when_its_body_fails(world):
    federation = world.federation()
    parts = Parts(federation.engine.trainer, federation.engine.data, workers=2)
    pids = []

    def fail():
        with room("processes", lambda text: pytest.fail("nobody follows")) as opener, opener(parts) as engine:
            run_round(replace(federation, engine=engine), federation.strategy.begin(0))
            pids.extend(worker.process.pid for worker in engine.pool.workers)
            raise TrainingError("out of paper")

    with pytest.raises(TrainingError, match="out of paper"):
        fail()
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_runs_one_after_the_other_open_workers_of_their_own():
    config = heroes.recipes.digits().changed({**SMALL, "engine.name": "processes", "engine.workers": 2})
    first, second = heroes.run(config), heroes.run(config)
    assert first.records == second.records
    assert first.federation.engine is not second.federation.engine
    assert first.federation.engine.pool.workers == second.federation.engine.pool.workers == []


def test_what_spoils_answers_hands_out_and_says_who_is_there_like_the_engine_behind_it():
    class Partly(FunctionEngine):
        handed = None

        def present(self):
            return np.array([True, False])

        def hand_out(self, tensors_of_width, widths):
            self.handed = {width: tensors_of_width(width) for width in widths}

    engine = Partly(lambda task: None)
    spoiling = FaultyEngine(engine, Faults(1, 2, garbage=1.0))
    assert spoiling.present().tolist() == [True, False]
    spoiling.hand_out(lambda width: {"width": width}, (1, 3))
    assert engine.handed == {1: {"width": 1}, 3: {"width": 3}}


def test_a_run_with_faults_hands_out_the_model_too():
    opener = Opener()
    heroes.run(heroes.recipes.digits().changed(SMALL | {"faults.garbage": 0.1}), engine=opener)
    assert list(opener.engines[0].handed) == [1, 2, 3, 4]


def test_where_nobody_keeps_a_model_nothing_is_cut_out(world):
    here = world.federation().engine
    with in_process.opened(Parts(here.trainer, here.data)) as engine:
        engine.hand_out(lambda width: pytest.fail("nobody asked for it"), (1, 2, 3))
        assert engine.present() is None
