"""A server that does not know what today is like: it plans with what clients did before, the clock charges
what they do. In virtual time, with the running means that are kept of real clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heroes.contracts import Known
from heroes.fleet.devices import Fleet
from heroes.fleet.known import besides_training
from heroes.messages import LEAST_PART, Assignment, Cohort, Integers, Measurement

_NOTHING = (np.nan,) * 5
_WEIGHT = 0.2  # of the newest measurement; draws are independent, so that a slow mean is nearest to the usual


@dataclass(frozen=True)
class Foreseen:
    """Clients as they were before, in running means; at first as their device class usually is."""

    drawn: Fleet

    def __len__(self) -> int:
        return len(self.drawn)

    def status(
        self, clients: Integers, round_number: int, attempt: int = 0, known: Known | None = None
    ) -> Cohort:
        """What the server expects of these clients. Nothing here depends on the round's draws."""
        usual = self.drawn.ordinary(clients)
        rows = np.array([(known or {}).get(client, _NOTHING) for client in clients.tolist()])
        a_byte, fixed = besides_training(rows)
        new = np.isnan(rows[:, 0])
        with np.errstate(divide="ignore"):
            rate = 1.0 / a_byte
        return replace(
            usual,
            speed=np.where(new, usual.speed, rows[:, 0]),
            upload=np.where(new, usual.upload, rate),
            download=np.where(new, usual.download, rate),
            overhead=np.where(new, usual.overhead, fixed),
        )


@dataclass(frozen=True)
class Today:
    """What clients really take in a round: the fleet's draws, which the plan was made without.

    `flops` are what an assignment has to compute.
    """

    drawn: Fleet
    flops: Callable[[Assignment], float]
    count_download: bool = True

    def real(self, plan: Sequence[Assignment]) -> list[Assignment]:
        """The same assignments with the seconds that they really take."""
        return self._on(plan, self.drawn.status(_clients(plan), plan[0].round, plan[0].attempt))

    def lived(self, plan: Sequence[Assignment]) -> list[Assignment]:
        """The same assignments with the steps that are done by those who go by their own clocks: as many as
        there is time for. What was planned for all of them together stays.
        """
        each = zip(plan, self.real(plan), strict=True)
        return [a if a.until is None else _stopped(a, a.until / real.step_seconds) for a, real in each]

    def measured(self, real: Sequence[Assignment], heard: Sequence[float]) -> tuple[Measurement, ...]:
        """What the server learns of clients whose updates were in after so many seconds."""
        if not real:
            return ()
        usual = self.drawn.ordinary(_clients(real))
        each = zip(real, heard, usual.speed.tolist(), self._on(real, usual), strict=True)
        return tuple(
            Measurement(
                a.client,
                self.flops(a),
                training=a.compute_seconds + (seconds - a.seconds),  # longer where it stalled
                moved=a.bytes_up + (a.bytes_down if self.count_download else 0),
                besides=a.transfer_seconds,
                weight=_WEIGHT,
                first=(speed, ordinary.transfer_seconds),
            )
            for a, seconds, speed, ordinary in each
        )

    def _on(self, plan: Sequence[Assignment], day: Cohort) -> list[Assignment]:
        """The assignments as they are on a day with these speeds and links."""
        rates = zip(plan, day.speed.tolist(), day.upload.tolist(), day.download.tolist(), strict=True)
        return [
            replace(
                a,
                step_seconds=self.flops(a) / speed / a.steps,  # estimates included
                probe_seconds=0.0,
                transfer_seconds=a.bytes_up / up + (a.bytes_down / down if self.count_download else 0.0),
            )
            for a, speed, up, down in rates
        ]


def _stopped(a: Assignment, fit: float) -> Assignment:
    """The assignment of a client that has time for so many steps of those that it was given."""
    whole, part = divmod(min(max(1.0, fit), float(a.most_steps)), 1.0)
    tau, last = (int(whole) + 1, part) if part >= LEAST_PART else (int(whole), 1.0)
    return replace(a, tau=tau, last=last, step_seconds=a.steps * a.step_seconds / (tau - 1 + last))


def _clients(plan: Sequence[Assignment]) -> Integers:
    return np.array([a.client for a in plan])
