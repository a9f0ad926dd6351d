"""The limit: the steps of a round on the same shapes by hand, in two processes of one thread each, without
federated learning.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

import torch
import torch.nn.functional as F

from benchmarks.peer_job import JOBS, Job, Line

PROCESSES = 2


def run(name: str, channels_last: bool, variant: str, address: str) -> None:
    torch.set_num_threads(1)
    fork, links = multiprocessing.get_context("fork"), []
    for number in range(PROCESSES):
        ours, theirs = fork.Pipe()
        fork.Process(
            target=work, args=(theirs, JOBS[name], channels_last, variant, number), daemon=True
        ).start()
        links.append(ours)
    for link in links:
        link.recv()  # it has its data
    line = Line(address)
    while line.wanted():
        start = time.perf_counter()
        for link in links:
            link.send(True)
        steps = sum(link.recv() for link in links)
        line.answer(time.perf_counter() - start, steps, 0.0)


def work(link: Connection, job: Job, channels_last: bool, precision: str, number: int) -> None:
    """Train one model on and on, a share of the round at a time."""
    torch.set_num_threads(1)
    model = job.model(channels_last)
    inputs, targets = job.data(channels_last)
    optimiser = torch.optim.SGD(model.parameters(), job.learning_rate, job.momentum)
    generator = torch.Generator().manual_seed(number)
    link.send(True)
    while link.recv():
        steps = job.steps * len(range(number, job.cohort, PROCESSES))
        for batch in torch.randint(len(targets), (steps, job.batch), generator=generator):
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                loss = F.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            optimiser.step()
        link.send(steps)
