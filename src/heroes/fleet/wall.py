"""The wall clock, and clients as fast as they were measured to be. For deployments, instead of `clock`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heroes.contracts import Known
from heroes.errors import RunFolderError
from heroes.fleet.clock import closing_time
from heroes.fleet.devices import Fleet
from heroes.fleet.known import besides_training
from heroes.messages import Assignment, Cohort, Floats, Integers, Lost, Measurement, Spent, Timing

UNKNOWN = "unknown"  # the device of a client that was never measured
_LEAST = 1e-3  # seconds; a shorter time cannot be told from none
_GENEROUS = 3.0  # how many times as far from the middle as in the configured fleet a client may be


class WallClock:
    """Real seconds since a plan was sent out.

    Engines tell it what they hear of clients, and it says when a round is over.
    """

    def __init__(self, deadline: float | None = None, deadline_factor: float | None = None) -> None:
        self.deadline = deadline
        self.deadline_factor = deadline_factor
        self._begun = time.monotonic()
        self._limit = float("inf")
        self._wanted = 0
        self._heard: dict[int, float] = {}
        self._spent: dict[int, Spent] = {}
        self._measured: list[Measurement] = []  # since the last round was over

    @property
    def name(self) -> str:
        return "wall"

    @property
    def now(self) -> float:
        """Seconds since the round began."""
        return time.monotonic() - self._begun

    def lived(self, plan: Sequence[Assignment]) -> tuple[Assignment, ...]:
        """The plan as it is: clients who go by their own clocks tell afterwards how many steps they did."""
        return tuple(plan)

    def absent(self, plan: Sequence[Assignment], wanted: int) -> tuple[Lost, ...]:
        """The round begins. Nobody can know yet who will be late."""
        self._begun, self._wanted, self._heard, self._spent = time.monotonic(), wanted, {}, {}
        # then the planned length means little
        guessed = any(assignment.device == UNKNOWN for assignment in plan)
        self._limit = closing_time(plan, self.deadline, None if guessed else self.deadline_factor)
        return ()

    def hear(self, client: int, spent: Spent | None = None) -> None:
        """This client's answer is in; `spent` may say what it spent its time on."""
        self._heard[client] = self.now
        if spent is not None:
            self._spent[client] = spent

    def note(self, measurement: Measurement) -> None:
        """A client was measured, in this round or while it was late for an earlier one."""
        self._measured.append(replace(measurement, training=max(measurement.training, _LEAST)))

    def over(self, client: int) -> Lost | None:
        """Why this client is no longer waited for, if the round is over."""
        if len(self._heard) >= self._wanted:
            return Lost(client, "not needed: enough others were in before", "surplus")
        return (
            Lost(client, f"not in after {self._limit:.2f} seconds", "late")
            if self.now > self._limit
            else None
        )

    def elapse(self, plan: Sequence[Assignment], wanted: int) -> Timing:
        duration, measured = self.now, tuple(self._measured)
        self._measured = []
        finished = np.array([self._heard.get(a.client, duration) for a in plan])
        return Timing(duration, finished, dict(self._spent), measured)


@dataclass(frozen=True)
class MeasuredFleet:
    """Clients as measured, in running means. One not measured yet is taken to be like the others.

    Of a client its speed is known, and what a round takes it besides training: so much whatever travels, and
    so much for every byte. How much is which shows when a client gets other widths; until then, and long
    after, all of it is taken to be fixed.

    Clients say themselves how fast they are. Nobody is taken to be further above the median than three times
    what the configured fleet has, so that boasts of a few do not make all others narrow.
    """

    guess: Fleet

    def __len__(self) -> int:
        return len(self.guess)

    def status(
        self, clients: Integers, round_number: int, attempt: int = 0, known: Known | None = None
    ) -> Cohort:
        """What the server knows of these clients."""
        if not known:
            guess = self.guess.status(clients, round_number, attempt)
            return replace(guess, devices=(UNKNOWN,) * len(clients))
        table = self._table(known)
        speed = self._bounded(table[:, 0])
        a_byte, fixed = besides_training(table)
        with np.errstate(divide="ignore"):
            rate = 1.0 / _known(a_byte, clients)
        usual = _known(speed, clients)
        return Cohort(
            clients=clients,
            devices=tuple(UNKNOWN if np.isnan(speed[client]) else "measured" for client in clients),
            speed=usual,
            upload=rate,
            download=rate,
            overhead=_known(fixed, clients),
            fastest=_fastest(speed),
            usual=usual,
        )

    def _bounded(self, speed: Floats) -> Floats:
        """The measured speeds without what no client of such a fleet can do."""
        usual = np.median(self.guess.speed_of(np.arange(len(self))))
        return np.minimum(speed, _GENEROUS * self.guess.fastest / usual * np.nanmedian(speed))

    def _table(self, known: Known) -> Floats:
        """A row for every client: FLOP/s; seconds besides; bytes; their variance; their covariance."""
        if max(known) >= len(self):
            raise RunFolderError(
                f"the checkpoint knows client {max(known)}, but there are only {len(self)}, from 0 on"
            )
        table = np.full((len(self), 5), np.nan)
        table[list(known)] = list(known.values())
        return table


def _fastest(speeds: Floats) -> float:
    """FLOP/s of the fastest client that is known.

    Where there are others to compare it with, it counts for no more than twice the next one.
    """
    known = np.sort(speeds[~np.isnan(speeds)])
    return float(known[-1] if len(known) < 3 else min(known[-1], 2 * known[-2]))


def _known(measured: Floats, clients: Integers) -> Floats:
    """What was measured of these clients; for those that were not, what the others are like."""
    return np.where(np.isnan(measured[clients]), np.nanmedian(measured), measured[clients])
