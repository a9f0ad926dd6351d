"""heroes with a model and data of one's own: its process engine, the whole round without testing."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.peer_job import CLASSES, JOBS, SEED, Job, Line
from heroes import Config, Examples, FederatedData, Shares
from heroes.assemble import Own, assembled
from heroes.rounds import run_round
from heroes.transport.engines import processes


def run(name: str, channels_last: bool, variant: str, address: str) -> None:
    """The layout is heroes' own business: channels last, whatever is asked for."""
    job, line = JOBS[name], Line(address)
    precision = "auto" if variant == "precision auto" else "float32"
    with assembled(config(job, precision), processes.opened, Own(job.build, data(job))) as federation:
        state = federation.strategy.begin(SEED)
        while line.wanted():
            start = time.perf_counter()
            state, record = run_round(federation, state)
            seconds = time.perf_counter() - start
            line.answer(
                seconds, sum(c.tau for c in record.clients if c.samples), job.moved(state.tensors.values())
            )


def config(job: Job, precision: str = "float32") -> Config:
    return Config().changed(
        {
            "strategy.name": "fedavg",
            "strategy.tau": job.steps,
            "federation.clients": job.clients,
            "federation.cohort": job.cohort,
            "model.max_width": job.width,
            "training.batch_size": job.batch,
            "training.learning_rate": job.learning_rate,
            "training.momentum": job.momentum,
            "training.clip": None,
            "training.device": "cpu",
            "training.precision": precision,
            "engine.workers": 2,
        }
    )


def data(job: Job) -> FederatedData:
    examples = Examples(*job.data(False))
    starts = np.arange(job.clients + 1) * job.examples
    return FederatedData(examples, examples, Shares(np.arange(len(examples)), starts), CLASSES)
