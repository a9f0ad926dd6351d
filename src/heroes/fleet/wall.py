"""The real world: time as it passes, and clients as fast as they were measured to be."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from heroes.contracts import Timing
from heroes.fleet.clock import closing_time
from heroes.fleet.devices import Fleet
from heroes.messages import Assignment, Cohort, Floats, Integers, Lost

_WEIGHT = 0.5  # of the newest measurement in the running mean
_LEAST = 1e-3  # seconds; a shorter time cannot be told from none


class WallClock:
    """Real seconds from when a plan is carried out. Whoever hears of clients says so; it says when a round is over."""

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
        self._limit = closing_time(plan, self.deadline, self.deadline_factor)
        return ()

    def hear(self, client: int, spent: tuple[float, float] | None = None) -> None:
        """The answer of this client is in; it may be known how long it computed and how long things travelled."""
        self._heard[client] = self.now
        if spent is not None:
            self._spent[client] = spent

    def over(self, client: int) -> Lost | None:
        """Why this client is no longer waited for, if the round is over."""
        if len(self._heard) >= self._wanted:
            return Lost(client, "not needed: enough others were in before", "surplus")
        return Lost(client, f"not in after {self._limit:.2f} seconds", "late") if self.now > self._limit else None

    def elapse(self, plan: Sequence[Assignment], wanted: int) -> Timing:
        duration = self.now
        return Timing(duration, np.array([self._heard.get(a.client, duration) for a in plan]), dict(self._spent))


class MeasuredFleet:
    """Clients as they were measured, in running means; for one that was not yet, what the others are like, else a guess."""

    def __init__(self, guess: Fleet) -> None:
        self.guess = guess
        self._speed = np.full(len(guess), np.nan)
        self._link = np.full(len(guess), np.nan)

    def __len__(self) -> int:
        return len(self.guess)

    @property
    def fastest(self) -> float:
        """FLOP/s of the fastest client that is known, or of the fastest device guessed at."""
        return self.guess.fastest if np.isnan(self._speed).all() else float(np.nanmax(self._speed))

    def note(self, client: int, flops: float, seconds: float, moved: int, transfer: float) -> None:
        """A client did so many FLOPs in so many seconds, and moved so many bytes in so many others."""
        for means, value in ((self._speed, flops / max(seconds, _LEAST)), (self._link, moved / max(transfer, _LEAST))):
            before = means[client]
            means[client] = value if np.isnan(before) else (1 - _WEIGHT) * before + _WEIGHT * value

    @property
    def known(self) -> dict[int, tuple[float, float]]:
        """FLOP/s and bytes/s of the clients that were measured, to be remembered."""
        clients = np.flatnonzero(~np.isnan(self._speed)).tolist()
        return {client: (float(self._speed[client]), float(self._link[client])) for client in clients}

    def restore(self, known: Mapping[int, tuple[float, float]]) -> None:
        """Go on with what was known."""
        self._speed[:], self._link[:] = np.nan, np.nan
        for client, (speed, link) in known.items():
            self._speed[client], self._link[client] = speed, link

    def status(self, clients: Integers, round_number: int, attempt: int = 0) -> Cohort:
        """What the server knows of these clients."""
        guess = self.guess.status(clients, round_number, attempt)
        return Cohort(
            clients=clients,
            devices=tuple("unknown" if np.isnan(self._speed[client]) else "measured" for client in clients),
            speed=_known(self._speed, clients, guess.speed),
            upload=_known(self._link, clients, guess.upload),
            download=_known(self._link, clients, guess.download),
            fastest=self.fastest,
        )


def _known(measured: Floats, clients: Integers, guess: Floats) -> Floats:
    own = measured[clients]
    others = guess if np.isnan(measured).all() else np.full(len(clients), np.nanmean(measured))
    return np.where(np.isnan(own), others, own)
