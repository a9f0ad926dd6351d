"""Client-steps per second of a whole federation against a bare PyTorch loop that does the same steps and
nothing else.

The bare loop is what one would write by hand: a module, a batch indexed out of tensors in memory,
cross-entropy, backward, `torch.optim.SGD`; two processes of one thread each, which share the work out by its
length. It samples nobody, cuts, sends, checks and averages nothing.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common import Side, ratio, save, say, show, take_turns
from heroes import recipes, rounds
from heroes.assemble import Own, assembled
from heroes.data.examples import Examples, FederatedData, Shares
from heroes.messages import Assignment, Plan
from heroes.models import MODELS
from heroes.models.family import Family
from heroes.settings.config import Config
from heroes.transport.engines import processes

WORKERS = 2
GOAL = 0.9


@dataclass(frozen=True)
class Case:
    """A recipe whose model is trained, the shape of its inputs (or the characters it reads), and the local
    steps of FedAvg.
    """

    recipe: str
    shape: tuple[int, ...]
    classes: int
    tau: int
    cohort: int = 10

    def data(self) -> FederatedData:
        """Random examples of the right shapes: 100 clients, 200 each."""
        generator = torch.Generator().manual_seed(0)
        count = (20_000, *self.shape)
        if self.recipe == "shakespeare":
            inputs = torch.randint(0, self.classes, count, generator=generator)
        else:
            inputs = torch.rand(count, generator=generator)
        train = Examples(inputs, torch.randint(0, self.classes, count[:1], generator=generator))
        shares = Shares.of(np.array_split(np.arange(count[0]), 100))
        return FederatedData(train, Examples(train.inputs[:100], train.targets[:100]), shares, self.classes)


CASES = {
    "CNN": Case("cifar10", (3, 32, 32), 10, 20),
    "RNN": Case("shakespeare", (80,), 80, 20),
    "ResNet-18": Case("imagenet100", (3, 64, 64), 100, 20, 4),
}


def main(quick: bool = False) -> None:
    rows, figures = [], []
    for name, case in CASES.items():
        data = case.data()
        for strategy in ("fedavg", "heroes"):
            say(f"{name}, {strategy}")
            sides, steps = _measure(case, strategy, data, turns=2 if quick else 3)
            share = ratio(sides["bare"], sides["heroes"])
            speeds = [steps / sides[side].median for side in ("bare", "heroes")]
            first = steps / sides["heroes"].first
            rows.append(
                (
                    f"{name}, {strategy}",
                    *(f"{s:.1f}" for s in (*speeds, first)),
                    f"{share:.2f}",
                    f"{GOAL:.2f}",
                )
            )
            figures.append(
                {"case": name, "strategy": strategy, "bare": speeds[0], "heroes": speeds[1], "share": share}
            )
            figures[-1] |= {"heroes_first": first, "seconds": {side: s.turns for side, s in sides.items()}}
    header = ("", "bare loop", "heroes", "first round", "share", "goal")
    show("Client-steps per second, two processes of one thread each", header, rows)
    save("limit", figures)


def config_of(case: Case, strategy: str) -> Config:
    changes: dict[str, Any] = {
        "federation.clients": 100,
        "federation.cohort": case.cohort,
        "data.name": "own",
        "engine.workers": WORKERS,
    }
    if strategy == "fedavg":
        changes["strategy.tau"] = case.tau
    else:  # widths as ever, but the same whole steps in every round, which a bare loop can do too
        changes |= {"strategy.adaptive_tau": False, "strategy.tau_first": case.tau, "strategy.tau_min": 1}
        changes |= {"strategy.any_width": 0.0, "exchange.up_bits": 32, "exchange.down_bits": 32}
        changes |= {"optimiser.name": "none", "evaluation.average": 0.0, "model.rank_ratio": 1.0}
    return recipes.recipe(case.recipe, strategy).changed(changes)


def _measure(case: Case, strategy: str, data: FederatedData, turns: int) -> tuple[dict[str, Side], int]:
    """Turns of one round each; the bare loop does the steps of the same plan."""
    config = config_of(case, strategy)
    model = partial(MODELS[config.model.name], max_width=config.model.max_width, classes=case.classes)
    with assembled(config, processes.opened, Own(model, data)) as federation:
        state = federation.strategy.begin(0)
        plan = planned(federation, state)
        steps = sum(a.tau for a in plan.assignments)

        def round_again() -> None:
            rounds.run_round(federation, state)  # always the first round: the same clients, the same work

        with closing(Bare(federation.family, config, data, plan.assignments)) as bare:
            return take_turns({"bare": bare.turn, "heroes": round_again}, turns), steps


def planned(federation: rounds.Federation, state: Any) -> Plan:
    clients = rounds.sample(federation, state)
    return federation.strategy.assign(state, federation.fleet.status(clients, 1))


@dataclass(frozen=True)
class Way:
    """How the bare loop computes; by default as heroes does in float32."""

    channels_last: bool = True
    bfloat16: bool = False


AS_HEROES = Way()


class Bare:
    """Processes that each do a fixed list of (width, steps) when told."""

    def __init__(
        self,
        family: Family,
        config: Config,
        data: FederatedData,
        plan: Sequence[Assignment],
        way: Way = AS_HEROES,
    ) -> None:
        jobs: list[list[tuple[int, int]]] = [[] for _ in range(WORKERS)]
        for a in sorted(plan, key=lambda a: -a.step_seconds * a.tau * a.selection.width):
            least = min(jobs, key=lambda own: sum(w * w * tau for w, tau in own))
            least.append((a.selection.width, a.tau))
        fork = multiprocessing.get_context("fork")
        self.links: list[Connection] = []
        self.processes = []
        for own in jobs:
            ours, theirs = fork.Pipe()
            process = fork.Process(
                target=_loop, args=(theirs, family, config, data.train, own, way), daemon=True
            )
            process.start()
            self.links.append(ours)
            self.processes.append(process)

    def turn(self) -> None:
        for link in self.links:
            link.send("go")
        for link in self.links:
            link.recv()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _loop(
    link: Connection,
    family: Family,
    config: Config,
    train: Examples,
    jobs: list[tuple[int, int]],
    way: Way,
) -> None:
    torch.set_num_threads(1)
    composed = config.strategy.name == "heroes"
    modules: dict[int, Any] = {}
    for width, _ in jobs:
        if width not in modules:
            local = family.composed(width) if composed else family.dense(width)
            local.load({name: torch.randn(tuple(shape)) * 0.02 for name, shape in local.shapes.items()})
            plain = composed or not way.channels_last
            modules[width] = local.module if plain else local.module.to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(1)
    batch = config.training.batch_size
    while True:
        link.recv()
        for width, tau in jobs:
            _train(modules[width], config, train.inputs, train.targets, batch, tau, generator, way)
        link.send("done")


def _train(
    module: Callable[[Tensor], Tensor],
    config: Config,
    inputs: Tensor,
    targets: Tensor,
    batch: int,
    tau: int,
    generator: Any,
    way: Way,
) -> None:
    t = config.training
    parameters = list(module.parameters())  # type: ignore[attr-defined]
    optimiser = torch.optim.SGD(parameters, t.learning_rate, t.momentum, weight_decay=t.weight_decay)
    for _ in range(tau):
        where = torch.randint(0, len(targets), (batch,), generator=generator)
        x = inputs[where]
        if x.dim() == 4 and way.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=way.bfloat16):
            loss = F.cross_entropy(module(x), targets[where])
        loss.backward()
        if t.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, t.clip)
        optimiser.step()
