"""What a round costs each client, and the assignments that follow. Shared by all strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heroes.errors import TrainingError, printable
from heroes.messages import Assignment, Cohort, Floats, Integers, Selection
from heroes.planning.pacing import affordable_widths

_BATCHES = 0.25, 1.5  # what may become of a batch, so that a client is done in time


@dataclass(frozen=True)
class LearningRate:
    """Starts at `start`, is multiplied by `decay` after every round, and never falls below `floor`.

    >>> LearningRate(0.1, decay=0.5, floor=0.03).at(1), LearningRate(0.1, decay=0.5, floor=0.03).at(5)
    (0.05, 0.03)
    """

    start: float
    decay: float = 1.0
    floor: float = 0.0

    def at(self, rounds_done: int) -> float:
        return float(max(self.start * self.decay**rounds_done, min(self.floor, self.start)))


@dataclass(frozen=True)
class Costs:
    """Per width, index p - 1: FLOPs of one local step, FLOPs of one probe gradient, bytes each way.

    `upload` gives the bytes up of a width, with so many bits and this share of values.
    """

    step_flops: Floats
    probe_flops: Floats
    bytes_up: Integers
    bytes_down: Integers
    upload: Callable[[int, int, float], int] | None = None


@dataclass(frozen=True)
class Load:
    """Per client of the cohort: `mu` seconds of a step, `nu` seconds of all that is not steps."""

    widths: Integers
    mu: Floats
    transfer: Floats
    probing: Floats
    bytes_up: Integers
    bytes_down: Integers

    @property
    def nu(self) -> Floats:
        return self.transfer + self.probing

    def sending(self, cohort: Cohort, bytes_up: Integers) -> Load:
        """The same with uploads of other sizes."""
        moved = self.transfer + (bytes_up - self.bytes_up) / cohort.upload
        return replace(self, bytes_up=bytes_up, transfer=moved)


def widths_afforded(cohort: Cohort, costs: Costs, step_limit: float | str) -> Integers:
    """For every client the largest width whose step, at its usual speed, keeps to the limit.

    The limit is in seconds, or what a step takes on the fastest device class: `shared` that of the complete
    dense model, `own` that of the complete model that is trained.
    """
    if isinstance(step_limit, str):
        complete = {"shared": costs.probe_flops, "own": costs.step_flops}[step_limit][-1]
        step_limit = float(complete) / cohort.fastest
    return affordable_widths(costs.step_flops, cohort.usual, step_limit)


def load_of(
    cohort: Cohort, widths: Integers, costs: Costs, *, gradients: int = 0, count_download: bool = True
) -> Load:
    """What these widths cost these clients, with so many gradients taken besides those of the steps."""
    most, given = len(costs.step_flops), np.asarray(widths)
    right = given.shape == (len(cohort),) and given.dtype.kind == "i"
    if not right or not ((given >= 1) & (given <= most)).all():
        raise TrainingError(
            f"choose_widths() of the strategy gave {printable(repr(widths), 100)}; it should give an "
            f"array of {len(cohort)} whole numbers from 1 to {most}, one for each client of the cohort"
        )
    row = given - 1
    up, down = costs.bytes_up[row], costs.bytes_down[row]
    return Load(
        widths=given,
        mu=costs.step_flops[row] / cohort.speed,
        transfer=up / cohort.upload + (down / cohort.download if count_download else 0.0) + cohort.overhead,
        probing=gradients * costs.probe_flops[row] / cohort.speed,
        bytes_up=up,
        bytes_down=down,
    )


def assignments(
    round_number: int,
    cohort: Cohort,
    load: Load,
    learning_rate: float,
    selections: Sequence[Selection],
    taus: Sequence[int],
    stragglers: Sequence[bool] | None = None,
    probes: bool = True,
) -> tuple[Assignment, ...]:
    """One assignment per client of the cohort, in its order."""
    late = [False] * len(cohort) if stragglers is None else stragglers
    columns = (load.mu, load.probing, load.transfer, load.bytes_down, load.bytes_up)
    each = zip(
        cohort.clients.tolist(),
        cohort.devices,
        selections,
        taus,
        late,
        *(column.tolist() for column in columns),
        strict=True,
    )
    return tuple(
        Assignment(
            round=round_number,
            client=client,
            device=device,
            selection=selection,
            tau=tau,
            learning_rate=learning_rate,
            step_seconds=step,
            probe_seconds=probe,
            transfer_seconds=transfer,
            bytes_down=down,
            bytes_up=up,
            straggler=straggler,
            probes=probes,
        )
        for client, device, selection, tau, straggler, step, probe, transfer, down, up in each
    )


def by_own_clocks(given: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """The same, but clients stop when the time is up that their steps were to take, however many they did."""
    return tuple(replace(a, until=a.compute_seconds) for a in given)


def done(a: Assignment, steps: float | None) -> Assignment:
    """The assignment as a client says that it carried it out, where that was up to its own clock."""
    if a.until is None or steps is None or not 1 <= steps <= a.most_steps:
        return a
    tau = math.ceil(steps)
    return replace(a, tau=tau, last=steps - (tau - 1))


def fitted(
    given: Sequence[Assignment], seconds: float, patience: float, tau_max: int
) -> tuple[Assignment, ...]:
    """The same with steps and batches that let all end after so many `seconds`; if else clients would wait
    for more than `patience` of the round, in the mean.

    Nobody can do part of a step, and where few fit into a round much of it would be waited for. So everyone
    does the whole number of steps that is nearest to what fits, with batches that are larger or smaller by as
    much as it takes, down to a quarter and up to half as large again.
    """
    ends = np.array([a.seconds for a in given])
    if ends.mean() >= (1 - patience) * ends.max():
        return tuple(given)
    return tuple(_fitted(a, seconds - a.seconds, tau_max) for a in given)


def _fitted(a: Assignment, left: float, tau_max: int) -> Assignment:
    """The same for a client that has so many seconds more than its steps take, or less."""
    tau = a.tau + (left >= a.step_seconds / 2 and a.tau < tau_max)
    smallest, largest = _BATCHES
    batch = min(max((a.tau + left / a.step_seconds) / tau, smallest), largest)
    late = a.straggler and batch == smallest
    return replace(a, tau=tau, batch=batch, step_seconds=batch * a.step_seconds, straggler=late)
