"""The real world: time as it passes, and clients as fast as they were measured to be."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from heroes.contracts import Timing
from heroes.errors import RunFolderError
from heroes.fleet.clock import closing_time
from heroes.fleet.devices import Fleet
from heroes.messages import Assignment, Cohort, Floats, Integers, Lost

UNKNOWN = "unknown"  # the device of a client that was never measured
_WEIGHT = 0.5  # of the newest measurement in the running mean
_PRIOR = (
    0.1  # how far bytes must have differed, as a share of them, for what a byte takes to be believed by half
)
_LEAST = 1e-3  # seconds; a shorter time cannot be told from none


class WallClock:
    """Real seconds from when a plan is carried out. Whoever hears of clients says so; it says when a round is
    over.
    """

    def __init__(self, deadline: float | None = None, deadline_factor: float | None = None) -> None:
        self.deadline = deadline
        self.deadline_factor = deadline_factor
        self._begun = time.monotonic()
        self._limit = float("inf")
        self._wanted = 0
        self._heard: dict[int, float] = {}
        self._spent: dict[int, tuple[float, float]] = {}

    @property
    def name(self) -> str:
        return "wall"

    @property
    def now(self) -> float:
        """Seconds since the round began."""
        return time.monotonic() - self._begun

    def absent(self, plan: Sequence[Assignment], wanted: int) -> tuple[Lost, ...]:
        """The round begins. Nobody can know who will not be in."""
        self._begun, self._wanted, self._heard, self._spent = time.monotonic(), wanted, {}, {}
        guessed = any(
            assignment.device == UNKNOWN for assignment in plan
        )  # then the planned length means little
        self._limit = closing_time(plan, self.deadline, None if guessed else self.deadline_factor)
        return ()

    def hear(self, client: int, spent: tuple[float, float] | None = None) -> None:
        """The answer of this client is in; it may be known how long it computed and how long things
        travelled.
        """
        self._heard[client] = self.now
        if spent is not None:
            self._spent[client] = spent

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
        duration = self.now
        return Timing(
            duration, np.array([self._heard.get(a.client, duration) for a in plan]), dict(self._spent)
        )


class MeasuredFleet:
    """Clients as they were measured, in running means; for one that was not yet, what the others are like,
    else a guess.

    Of a client its speed is known, and what a round takes it besides training: so much whatever travels, and
    so much for every byte. How much is which shows when a client gets other widths; until then, and long
    after, all of it is taken to be fixed.
    """

    def __init__(self, guess: Fleet) -> None:
        self.guess = guess
        self._kept = np.full(
            (len(guess), 5), np.nan
        )  # FLOP/s; seconds besides; bytes; their variance; their covariance

    def __len__(self) -> int:
        return len(self.guess)

    @property
    def fastest(self) -> float:
        """FLOP/s of the fastest client that is known, or of the fastest device guessed at.

        A client says itself how fast it is. Where there are others to compare it with, it counts for no more
        than twice the next one: a single boast must not make all others narrow.
        """
        known = np.sort(self._kept[~np.isnan(self._kept[:, 0]), 0])
        if not len(known):
            return self.guess.fastest
        return float(known[-1] if len(known) < 3 else min(known[-1], 2 * known[-2]))

    def note(self, client: int, flops: float, training: float, moved: int, besides: float) -> None:
        """A client did so many FLOPs in so many seconds, and a round with so many bytes took it so many
        seconds besides.
        """
        speed = flops / max(training, _LEAST)
        if np.isnan(self._kept[client, 0]):
            self._kept[client] = speed, besides, moved, 0.0, 0.0
            return
        before = self._kept[client]
        more, longer = moved - before[2], besides - before[1]
        means = before[:3] + _WEIGHT * (np.array([speed, besides, moved]) - before[:3])
        spread = (1 - _WEIGHT) * (before[3:] + _WEIGHT * more * np.array([more, longer]))
        self._kept[client] = [*means, *spread]

    @property
    def known(self) -> dict[int, tuple[float, ...]]:
        """What is known of the clients that were measured, to be remembered."""
        clients = np.flatnonzero(~np.isnan(self._kept[:, 0])).tolist()
        return {client: tuple(self._kept[client].tolist()) for client in clients}

    def restore(self, known: Mapping[int, tuple[float, ...]]) -> None:
        """Go on with what was known."""
        if any(client >= len(self) for client in known):
            raise RunFolderError(
                f"the checkpoint knows client {max(known)}, but there are only {len(self)}, from 0 on"
            )
        self._kept[:] = np.nan
        for client, values in known.items():
            self._kept[client] = values

    def status(self, clients: Integers, round_number: int, attempt: int = 0) -> Cohort:
        """What the server knows of these clients."""
        if np.isnan(self._kept[:, 0]).all():
            guess = self.guess.status(clients, round_number, attempt)
            return replace(guess, devices=(UNKNOWN,) * len(clients))
        speed, besides, moved, variance, covariance = self._kept.T
        a_byte = np.clip(covariance / (variance + (_PRIOR * moved) ** 2), 0.0, besides / moved)
        with np.errstate(divide="ignore"):
            rate = 1.0 / _known(a_byte, clients)
        return Cohort(
            clients=clients,
            devices=tuple(UNKNOWN if np.isnan(speed[client]) else "measured" for client in clients),
            speed=_known(speed, clients),
            upload=rate,
            download=rate,
            overhead=_known(besides - a_byte * moved, clients),
            fastest=self.fastest,
        )


def _known(measured: Floats, clients: Integers) -> Floats:
    """What was measured of these clients; of others, what the known are like."""
    return np.where(np.isnan(measured[clients]), np.nanmedian(measured), measured[clients])
