"""Clients that misbehave, in front of any engine: some send garbage, hostile ones harm the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from heroes import seeds
from heroes.contracts import Engine
from heroes.fleet.faults import Faults, Mask
from heroes.messages import Assignment, Lost, Score, Task, Tensors, Update


class FaultyEngine:
    """Hands tasks to the engine behind it, and spoils the updates of faulty and hostile clients."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self.engine = engine
        self.faults = faults

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        sent: dict[int, Tensors] = {}

        def noted(assignment: Assignment) -> Task:
            task = make_task(assignment)
            if self.faults.hostile(assignment.client):
                sent[assignment.client] = task.tensors
            return task

        given = {assignment.client: assignment for assignment in plan}
        for update in self.engine.run(plan, noted):
            if isinstance(update, Lost) or update.client not in given:
                yield update
                continue
            assignment = given[update.client]
            rng = seeds.stream(
                self.faults.seed, "faults", "spoilt", assignment.round, assignment.attempt, assignment.client
            )
            if update.client in sent:
                update = replace(update, tensors=self._hostile(update.tensors, sent.pop(update.client), rng))
            yield spoilt(update, rng) if self.faults.draw(assignment) == "garbage" else update

    def score(self, tensors: Tensors, width: int, *, sample: bool = False) -> Callable[[], Score]:
        return self.engine.score(tensors, width, sample=True) if sample else self.engine.score(tensors, width)

    def present(self) -> Mask | None:
        return self.engine.present()

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        self.engine.hand_out(tensors_of_width, widths)

    def _hostile(self, trained: Tensors, sent: Tensors, rng: np.random.Generator) -> dict[str, Tensor]:
        """What an attacker sends instead of what it trained."""
        changes = {name: tensor - sent[name] for name, tensor in trained.items()}
        if self.faults.attack == "noise":
            changes = {
                name: torch.from_numpy(rng.standard_normal(tuple(change.shape), np.float32))
                * change.square().mean().sqrt()
                for name, change in changes.items()
            }
        scale = -self.faults.attack_scale if self.faults.attack == "flip" else self.faults.attack_scale
        return {name: sent[name] + scale * change for name, change in changes.items()}


def spoilt(update: Update, rng: np.random.Generator) -> Update:
    """An update that makes no sense, in one of many ways."""
    ways = (
        _not_a_number,
        _infinite,
        _reshaped,
        _retyped,
        _renamed,
        _cut_short,
        _from_elsewhere,
        _of_yesterday,
        _boasting,
    )
    return ways[int(rng.integers(len(ways)))](update)


def _first(update: Update, change: Callable[[Tensor], Tensor]) -> Update:
    name = next(iter(update.tensors))
    return replace(update, tensors={**update.tensors, name: change(update.tensors[name])})


def _not_a_number(update: Update) -> Update:
    return _first(update, lambda tensor: torch.full_like(tensor, torch.nan))


def _infinite(update: Update) -> Update:
    return _first(update, lambda tensor: torch.full_like(tensor, torch.inf))


def _reshaped(update: Update) -> Update:
    return _first(update, lambda tensor: tensor.reshape(1, -1, 1))


def _retyped(update: Update) -> Update:
    return _first(update, lambda tensor: tensor.to(torch.float64))


def _renamed(update: Update) -> Update:
    return replace(update, tensors={f"{name}?": tensor for name, tensor in update.tensors.items()})


def _cut_short(update: Update) -> Update:
    return replace(update, tensors=dict(list(update.tensors.items())[:-1]))


def _from_elsewhere(update: Update) -> Update:
    return replace(update, nonce=update.nonce ^ 1)


def _of_yesterday(update: Update) -> Update:
    return replace(update, round=update.round - 1)


def _boasting(update: Update) -> Update:
    return replace(update, samples=-update.samples)
