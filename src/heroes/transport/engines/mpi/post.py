"""How messages travel between ranks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from heroes.errors import ExchangeError, TrainingError, said
from heroes.transport.engines.mpi.world import state, world
from heroes.transport.wire import Bytes

if TYPE_CHECKING:
    from mpi4py.MPI import Request

STOP_SECONDS = 10.0  # to leave
_TAG = 7747  # of all messages; an empty one says that it is over
_LARGEST = 2**31 - 1  # bytes in a message: MPI counts with 32 bits
_SHORT, _LONG = 1e-4, 2e-3  # seconds between two looks for messages


class Post:
    """Messages to and from other ranks, carried by a thread while this process computes.

    The thread makes every MPI call. `over` is called in it when rank 0 says that the run is over.
    """

    def __init__(self, over: Callable[[], None] = lambda: None) -> None:
        from mpi4py import MPI

        self.world = world()
        self.inbox: SimpleQueue[tuple[int, Bytes | Exception]] = SimpleQueue()
        self._over = over
        self._status, self._byte = MPI.Status(), MPI.BYTE
        self._outbox: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._sending: list[tuple[Request, bytes]] = []
        self._coming: deque[tuple[Request, int, Bytes]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="heroes-mpi", daemon=True)
        self._thread.start()

    def send(self, to: int, parcel: bytes) -> None:
        if len(parcel) > _LARGEST:
            raise ExchangeError(f"a message of {len(parcel)} bytes is more than MPI carries")
        self._outbox.put((to, parcel))
        self._wake.set()

    def receive(self, seconds: float | None = None) -> tuple[int, Bytes]:
        """The next message and who sent it. Raises Empty if none comes in time."""
        sender, parcel = self.inbox.get(timeout=seconds)
        if isinstance(parcel, Exception):
            raise TrainingError(f"MPI failed: {said(parcel)}")
        return sender, parcel

    def close(self) -> None:
        """Send what is left to be sent, if the others take it soon."""
        self._closing = True
        self._wake.set()
        self._thread.join(STOP_SECONDS)
        state.broken |= self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._carry()
        except Exception as error:  # MPI's own; whoever waits for a message must hear of it
            self.inbox.put((0, error))

    def _carry(self) -> None:
        pause = _SHORT
        while not (self._closing and self._outbox.empty() and not self._sending):
            moved = self._send_more() + self._receive_more() + self._finish()
            pause = _SHORT if moved else min(2 * pause, _LONG)
            self._wake.wait(pause)
            self._wake.clear()

    def _send_more(self) -> int:
        count = 0
        while not self._outbox.empty():
            to, parcel = self._outbox.get()
            self._sending.append((self.world.Isend([parcel, self._byte], to, _TAG), parcel))
            count += 1
        return count

    def _receive_more(self) -> int:
        count = 0
        while (message := self.world.Improbe(tag=_TAG, status=self._status)) is not None:
            parcel = np.empty(self._status.Get_count(self._byte), np.uint8)
            self._coming.append((message.Irecv([parcel, self._byte]), self._status.source, parcel))
            count += 1
        return count

    def _finish(self) -> int:
        """Hand on what has come, in the order in which it came."""
        self._sending = [(request, parcel) for request, parcel in self._sending if not request.Test()]
        count = 0
        while self._coming and self._coming[0][0].Test():
            _, sender, parcel = self._coming.popleft()
            self.inbox.put((sender, parcel))
            if not len(parcel):
                self._over()
            count += 1
        return count
