"""Flower's simulation with its own FedAvg: two Ray workers of one processor and one thread each.

Written for speed: each worker keeps data and model from one client to the next, and batches are slices of
tensors, not a DataLoader. The ServerApp does one round of the strategy whenever one is wanted.
"""

from __future__ import annotations

import os
import time
from functools import cache, partial

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from benchmarks.peer_job import JOBS, Line

client_app = ClientApp()


@cache
def resident(name: str, channels_last: bool) -> tuple[nn.Module, Tensor, Tensor]:
    torch.set_num_threads(1)
    return JOBS[name].model(channels_last), *JOBS[name].data(channels_last)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    job = JOBS[config["job"]]
    model, inputs, targets = resident(config["job"], config["channels-last"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), job.learning_rate, job.momentum)
    first, steps = int(context.node_config["partition-id"]) * job.examples, 0
    for _ in range(job.epochs):
        for batch in (first + torch.randperm(job.examples)).split(job.batch):
            optimiser.zero_grad()
            F.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimiser.step()
            steps += 1
    metrics = MetricRecord({"num-examples": job.examples, "steps": steps})
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
    )


def total_steps(records: list[RecordDict], weight: str) -> MetricRecord:
    return MetricRecord({"steps": sum(record["metrics"]["steps"] for record in records)})


def serve(name: str, channels_last: bool, address: str, grid: Grid, context: Context) -> None:
    job, line = JOBS[name], Line(address)
    share = job.cohort / job.clients
    strategy = FedAvg(
        share, 0.0, job.cohort, min_available_nodes=job.clients, train_metrics_aggr_fn=total_steps
    )
    arrays = ArrayRecord(job.model(channels_last).state_dict())
    config = ConfigRecord({"job": name, "channels-last": channels_last})
    while line.wanted():
        start = time.perf_counter()
        result = strategy.start(grid, arrays, num_rounds=1, train_config=config)
        seconds, arrays = time.perf_counter() - start, result.arrays
        moved = job.moved(arrays.to_torch_state_dict().values())
        line.answer(seconds, int(result.train_metrics_clientapp[1]["steps"]), moved)


def run(name: str, channels_last: bool, variant: str, address: str) -> None:
    server_app = ServerApp()
    server_app.main()(partial(serve, name, channels_last, address))
    run_simulation(
        server_app,
        client_app,
        num_supernodes=JOBS[name].clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2, "_temp_dir": os.environ["FLWR_HOME"]},
        },
    )
