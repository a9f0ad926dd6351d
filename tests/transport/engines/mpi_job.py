"""What `test_mpi` starts with mpiexec: cases one after the other on the tiny federation; rank 0 writes what
it found as JSON.

Every rank goes through the same list of cases. Rank 0 plays each beside the reference engine; the others
serve.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "waiting"))
sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from own_strategy import FedRolex  # type: ignore[import-not-found]
from representatives import representatives  # type: ignore[import-not-found]

import heroes
from conftest import World, build_network  # type: ignore[import-not-found]
from heroes.data import FederatedData
from heroes.federation import Federation, Stop
from heroes.messages import Task
from heroes.rounds import run, run_round
from heroes.slices.cuts import cut_out
from heroes.transport.engines import mpi
from heroes.transport.engines.in_process import InProcessEngine
from heroes.transport.opening import Parts

world = World()
UNLUCKY = 5


@dataclass(frozen=True)
class Mishap:
    """A transform to which something happens at marked examples, when they are trained on."""

    what: Callable[[], object]
    # the last client's generator: it happens once in a round
    at: list[object] = field(default_factory=lambda: [None])

    def __call__(self, stored: torch.Tensor, rng: object) -> torch.Tensor:
        if rng is not None and bool((stored == 99.0).any()) and rng is not self.at[0]:
            self.at[0] = rng
            self.what()
        return stored


def failing() -> None:
    raise ValueError("no\n  such thing")


def with_mishap(federation: Federation, what: Callable[[], object]) -> Federation:
    engine = federation.engine
    data = engine.data
    inputs = data.train.inputs.clone()
    inputs[torch.from_numpy(data.shares[UNLUCKY])] = 99.0
    broken = FederatedData(replace(data.train, inputs=inputs, transform=Mishap(what)), data.test, data.shares)
    return replace(federation, engine=InProcessEngine(engine.trainer, broken, 20))


def plain(name: str, **options: Any) -> Federation:
    federation = world.federation(world.strategy(name), cohort=7, **options)
    return replace(federation, engine=InProcessEngine(federation.engine.trainer, federation.engine.data, 20))


def same(one: list[Any], two: list[Any]) -> bool:
    """Records and models of two runs, to the bit."""
    return [entry for _, entry in one] == [entry for _, entry in two] and all(
        first.memory == second.memory
        and first.tensors.keys() == second.tensors.keys()
        and all(torch.equal(value, second.tensors[name]) for name, value in first.tensors.items())
        for (first, _), (second, _) in zip(one, two, strict=True)
    )


def same_bits(ours: Federation, reference: Federation) -> object:
    return same(list(run(ours, Stop(3))), list(run(reference, Stop(3))))


def lost(ours: Federation, reference: Federation) -> object:
    """Who was lost and why in two rounds, and whether the others made the same model."""
    found, expected = list(run(ours, Stop(2))), list(run(reference, Stop(2)))
    without = [
        [(state, replace(entry, missing=())) for state, entry in rounds] for rounds in (found, expected)
    ]
    return {
        "same": same(*without),
        "missing": [[[m.client, m.reason] for m in entry.missing] for _, entry in found],
    }


def abandoned(ours: Federation, reference: Federation) -> object:
    half = ours.engine.run([world.assignment(client) for client in range(8)], task(ours))
    next(half)
    half.close()
    return same_bits(ours, reference)


def task(ours: Federation, seen: list[int] | None = None) -> Callable[[Any], Task]:
    state = ours.strategy.begin(0)
    slices: dict[Any, Any] = {}

    def make(a: Any) -> Task:
        if seen is not None:
            seen.append(a.client)
        if a.selection not in slices:
            slices[a.selection] = cut_out(state.tensors, ours.strategy.cut(a.selection))
        return Task(a, slices[a.selection], a.client)

    return make


def longest_first(ours: Federation, _: Federation) -> object:
    seen: list[int] = []
    plan = [world.assignment(client, tau=tau) for client, tau in enumerate([2, 9, 4, 7, 1, 8])]
    return {"answered": sorted(u.client for u in ours.engine.run(plan, task(ours, seen))), "begun": seen}


def sizes(ours: Federation, _: Federation) -> object:
    """How large the tasks were on their way, by rank: all of them with the same slice."""
    post, found = ours.engine.ranks.post, {}
    send = post.send
    post.send = lambda to, parcel: found.setdefault(str(to), []).append(len(parcel)) or send(to, parcel)
    plan = [world.assignment(client) for client in range(8)]
    assert len(list(ours.engine.run(plan, task(ours)))) == 8
    return {to: list(lengths) for to, lengths in found.items()}


def scores(ours: Federation, reference: Federation) -> object:
    state = ours.strategy.begin(5)
    begun = {width: ours.score(state, width) for width in (1, 2, 3)}  # at the same time
    beside = ours.score(state, 3)
    run_round(ours, state)
    ours.engine.ranks.do, do = None, ours.engine.ranks.do  # nothing is left to do
    matches = [beside() == reference.score(state, 3)()]
    ours.engine.ranks.do = do
    return matches + [begun[width]() == reference.score(state, width)() for width in (3, 1, 2)]


def stuck(ours: Federation, _: Federation) -> object:
    """All ranks are busy with what nobody waits for; they leave before it is done."""
    ours.engine.ranks.seconds = 0.5
    plan = [world.assignment(client, tau=10**5) for client in range(2)]
    return [type(answer).__name__ for answer in ours.engine.run(plan, task(ours))]


SLOW = 2.0
CASES: dict[str, tuple[Callable[[], Federation], Callable[[Federation, Federation], object]]] = {
    **{name: (lambda name=name: plain(name), same_bits) for name in representatives()},
    "eight bits": (lambda: plain("heroes", up_bits=8, down_bits=8), same_bits),
    "feedback": (lambda: plain("fedavg", up_bits=4, down_bits=8, error_feedback=True), same_bits),
    "failing": (lambda: with_mishap(world.federation(clients=8, cohort=8), failing), lost),
    "late": (lambda: with_mishap(world.federation(clients=8, cohort=8), lambda: time.sleep(SLOW)), lost),
    "abandoned": (lambda: plain("heroes"), abandoned),
    "stuck": (lambda: plain("heroes"), stuck),
    "longest first": (lambda: plain("heroes"), longest_first),
    "sizes": (lambda: plain("heroes"), sizes),
    "scores": (lambda: plain("heroes"), scores),
}


def lead(name: str) -> object:
    make, play = CASES[name]
    reference = with_mishap(world.federation(clients=8, cohort=8), failing) if name == "late" else make()
    with mpi.leading(follow) as opener:
        ours = make()
        seconds = SLOW / 2 if name == "late" else 60.0
        parts = Parts(ours.engine.trainer, ours.engine.data, 20, config=name, task_seconds=seconds)
        with opener(parts) as engine:
            return play(replace(ours, engine=engine), reference)


def follow(name: str) -> Parts:
    engine = CASES[name][0]().engine
    return Parts(engine.trainer, engine.data, 20)


def from_python(out: Path) -> object:
    """A run that rank 0 alone refuses, one that fails at rank 0, then a whole one with own parts.

    The other ranks end each of them by `Served`.
    """
    (out / "records.jsonl").touch()
    config = heroes.Config().changed(
        {"federation.clients": 12, "federation.cohort": 4, "federation.rounds": 2}
    )
    config = config.changed({"model.max_width": 3, "training.batch_size": 5, "engine.name": "mpi"})
    try:
        heroes.run(config, out=out)
    except heroes.HeroesError as error:
        refused = str(error)
    except heroes.transport.engines.mpi.Served:
        refused = "served"
    own = {"model": build_network, "data": world.data(), "strategy": FedRolex(tau=3)}
    failed = False
    with suppress(mpi.Served):
        try:
            heroes.run(config, on_round=lambda record: failing(), **own)
        except ValueError:
            failed = True
    run = heroes.run(config, **own)
    here = heroes.run(config.changed({"engine.name": "in_process"}), **own)
    return {
        "refused": "already holds a run" in refused,
        "failed": failed,
        "same": run.records == here.records,
    }


def main(out: str) -> None:
    torch.set_num_threads(1)
    found = {}
    for name in CASES:
        if mpi.rank() == 0:
            found[name] = lead(name)
        else:
            with suppress(mpi.Served):
                mpi.serve(follow)
    found["from python"] = from_python(Path(out).parent)  # only rank 0 goes on
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
