"""What carrying tasks costs: seconds a round and a client on every engine, and bytes on the wire against the
payload.

Digits with one local step, so that little is left but carrying; two cohorts, from whose difference the share
of a client follows. All engines run on this machine with two workers (MPI: three ranks) and take turns.
Rounds are timed inside a run; the first three are left out. Bytes are those of a task of the CIFAR-10 model
and of its answer, as each engine packs them; and, of a deployed Flower federation, all that goes through its
sockets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from benchmarks import deployed
from benchmarks.common import save, say, show
from heroes import Config, recipes, run
from heroes.messages import Assignment, RoundRecord, Selection, Task, Update
from heroes.models.cnn import build
from heroes.models.family import Family
from heroes.planning.pacing import Estimates
from heroes.slices.exchange import pack_tensors, tensors_bytes, unpack_tensors
from heroes.slices.uploads import pack_update
from heroes.transport.wire import Frame, Parcels, task_frame, update_frame

ENGINES = ("in_process", "processes", "mpi", "flower")
COHORTS = (4, 20)
ROUNDS = 15
MOST_OVERHEAD = 0.02  # the goal: bytes beside the payload


def main(quick: bool) -> None:
    turns = 1 if quick else 3
    found: dict[str, dict[int, list[float]]] = {
        engine: {cohort: [] for cohort in COHORTS} for engine in ENGINES
    }
    for turn in range(turns):
        for engine in ENGINES:
            for cohort in COHORTS:
                found[engine][cohort].append(_timed(engine, cohort))
                say(
                    f"turn {turn + 1} of {turns}: {engine}, {cohort} clients: "
                    f"{1000 * found[engine][cohort][-1]:.1f} ms a round"
                )
    rows = []
    for engine, of in found.items():
        small, large = (median(of[cohort]) for cohort in COHORTS)
        client = (large - small) / (COHORTS[1] - COHORTS[0])
        rows.append(
            (engine, *(f"{1000 * s:.1f} ms" for s in (small, large, client, small - COHORTS[0] * client)))
        )
    show(
        "Carrying",
        ("engine", *(f"round of {cohort}" for cohort in COHORTS), "a client", "a round besides"),
        rows,
    )
    sizes = _sizes()
    show(
        "On the wire",
        ("engine", "width", "bits", "payload", "bytes", "besides"),
        [(e, str(w), str(b), f"{p:,}", f"{n:,}", f"{100 * (n / p - 1):.2f} %") for e, w, b, p, n in sizes],
        f"goal: at most {100 * MOST_OVERHEAD:g} % besides the payload",
    )
    real = []
    for width, bits in [(4, 32)] if quick else [(4, 32), (1, 32), (4, 8), (1, 8)]:
        real.append(deployed.measure(width, bits))
        say(f"deployed, width {width}, {bits} bits: {real[-1].seconds:.1f} s a round")
    show(
        f"Flower deployed on loopback, {deployed.NODES} nodes, all bytes through their sockets",
        ("width", "bits", "a round", "payload of a round", "bytes", "besides"),
        [
            (
                str(d.width),
                str(d.bits),
                f"{d.seconds:.1f} s",
                f"{d.payload:,.0f}",
                f"{d.carried:,.0f}",
                f"{d.besides:.1f} %",
            )
            for d in real
        ],
    )
    if not quick:
        save("engines", {"seconds": found, "bytes": sizes, "deployed": [asdict(each) for each in real]})


def job(engine: str, cohort: int) -> None:
    """One run, in a process (or a rank) of its own; prints the median seconds of a round."""
    at: list[float] = []

    def note(record: RoundRecord) -> None:
        at.append(time.perf_counter())

    run(_config(engine, cohort), on_round=note)
    print(json.dumps(median(b - a for a, b in pairwise(at[2:]))), flush=True)


def _config(engine: str, cohort: int) -> Config:
    return recipes.recipe("digits", "fedavg").changed(
        {
            "federation.rounds": ROUNDS,
            "federation.cohort": cohort,
            "strategy.tau": 1,
            "evaluation.every": 1000,
            "engine.name": engine,
            "engine.workers": 2,
        }
    )


def _timed(engine: str, cohort: int) -> float:
    command = [sys.executable, "-m", "benchmarks.engines", engine, str(cohort)]
    if engine == "mpi":
        command = [
            str(Path(sys.executable).parent / "mpiexec"),
            "-n",
            "3",
            "--allow-run-as-root",
            "--oversubscribe",
            *command,
        ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise RuntimeError(f"{engine} failed: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def _sizes() -> list[tuple[str, int, int, int, int]]:
    """Engine, width, bits, bytes of payload, bytes as they travel: a task and its answer together."""
    family = Family(build, 4)
    sizes = []
    for width in (1, 4):
        for bits in (32, 8):
            task, update = _exchange(family, width)
            payload = 2 * tensors_bytes(family.tensor_shapes(width).values(), bits)
            if bits == 32:  # inside a machine or a cluster tensors travel as they are
                framed = _length(task_frame(task)) + _length(update_frame(update))
                sizes.append(("processes, mpi", width, bits, payload, framed))
            sizes.append(("flower", width, bits, payload, _flower_length(task, update, bits)))
    return sizes


def _exchange(family: Family, width: int) -> tuple[Task, Update]:
    """A task of this width as it may be, and an answer to it."""
    shapes = family.tensor_shapes(width)
    tensors = {
        name: torch.randn(shape, generator=torch.Generator().manual_seed(0)) for name, shape in shapes.items()
    }
    selection = Selection(width, tuple(range(width)), tuple(range(width * width)))
    given = Assignment(
        100,
        17,
        "AGX Xavier",
        selection,
        25,
        0.0234567,
        0.123456,
        0.234567,
        1.23456,
        10**6,
        10**6,
        nonce=2**62,
    )
    moved = {name: tensor + 0.01 for name, tensor in tensors.items()}
    estimates = Estimates(1.23456789, 2.3456789, 3.456789, 4.56789)
    return Task(given, tensors, 2**61), Update(17, 100, moved, 500, estimates, nonce=2**62)


def _length(frame: Frame) -> int:
    return len(Parcels().wrap(frame))


def _flower_length(task: Task, update: Update, bits: int) -> int:
    """As Flower's messages are made for both ways, from header to tensors."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    from heroes.transport.engines.flower.messages import content, joined, order_of

    down = pack_tensors(task.tensors, bits) if bits < 32 else task.tensors
    got = unpack_tensors(pack_tensors(task.tensors, bits)) if bits < 32 else task.tensors
    up = pack_update(update.tensors, got, bits, 1) if bits < 32 else update.tensors
    took = {"trained": 12.3456, "bits": bits}
    messages = (
        content({**order_of(replace(task, tensors=got)), "bits": bits}, tensors=joined(down)),
        content({**update_frame(update).header, **took}, tensors=joined(up)),
    )
    return sum(
        len(part.deflate()) for message in messages for part in get_all_nested_objects(message).values()
    )


if __name__ == "__main__":
    job(sys.argv[1], int(sys.argv[2]))
