"""How messages travel between ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from heroes.errors import ExchangeError, RankLostError, TrainingError, said
from heroes.transport.engines.mpi.watch import Watch
from heroes.transport.engines.mpi.world import state, world
from heroes.transport.wire import Bytes

if TYPE_CHECKING:
    from mpi4py.MPI import Request

STOP_SECONDS = 10.0  # to leave
_TAG = 7747  # of all messages; an empty one says that it is over
_ALIVE = b"?"  # of rank 0: are you there? From another: yes
_LARGEST = 2**31 - 1  # bytes in a message: MPI counts with 32 bits
_SHORT, _LONG = 1e-4, 2e-3  # seconds between two looks for messages


class Post:
    """Messages to and from other ranks, carried by a thread while this process computes.

    The thread makes every MPI call, and watches whether the others are there: those of rank 0 are all others,
    theirs is rank 0. `over` is called in it when rank 0 says that the run is over, or when a rank is lost.
    """

    def __init__(self, over: Callable[[], None] = lambda: None) -> None:
        self.world = world()  # which starts MPI; only then
        from mpi4py import MPI

        self.inbox: SimpleQueue[tuple[int, Bytes | Exception]] = SimpleQueue()
        self.hosts: dict[int, str] = {}  # of ranks, as far as they are known
        self._asks = self.world.rank == 0
        self.watch = Watch(range(1, self.world.size) if self._asks else [0])
        self.lost: set[int] = set()
        self._over = over
        self._status, self._byte = MPI.Status(), MPI.BYTE
        self._outbox: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._sending: list[tuple[Request, int, bytes]] = []
        self._coming: list[tuple[Request, int, Bytes]] = []
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
        if not isinstance(parcel, Exception):
            return sender, parcel
        self.inbox.put((sender, parcel))  # the next who waits, such as a test of the model, hears it too
        raise parcel if isinstance(parcel, RankLostError) else TrainingError(f"MPI failed: {said(parcel)}")

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
        while not (self._closing and self._outbox.empty() and not self._unsent()):
            moved = self._send_more() + self._receive_more() + self._finish()
            self._look_around()
            pause = _SHORT if moved else min(2 * pause, _LONG)
            self._wake.wait(pause)
            self._wake.clear()

    def _unsent(self) -> bool:
        return any(to not in self.lost for _, to, _ in self._sending)

    def _send_more(self) -> int:
        count = 0
        while not self._outbox.empty():
            to, parcel = self._outbox.get()
            self._send_now(to, parcel)
            if not parcel:
                self.watch.leave(to)
            count += 1
        return count

    def _send_now(self, to: int, parcel: bytes) -> None:
        self._sending.append((self.world.Isend([parcel, self._byte], to, _TAG), to, parcel))

    def _receive_more(self) -> int:
        count = 0
        while (message := self.world.Improbe(tag=_TAG, status=self._status)) is not None:
            parcel = np.empty(self._status.Get_count(self._byte), np.uint8)
            self._coming.append((message.Irecv([parcel, self._byte]), self._status.source, parcel))
            count += 1
        return count

    def _finish(self) -> int:
        """Hand on what has come, each rank's messages in their order; signs of life wait for nothing."""
        self._sending = [entry for entry in self._sending if not entry[0].Test()]
        before, unfinished = self._coming, set[int]()
        self._coming = []
        for request, sender, parcel in before:
            waits = len(parcel) != len(_ALIVE) and sender in unfinished
            if waits or not request.Test():
                unfinished.add(sender)
                self._coming.append((request, sender, parcel))
            else:
                self._hand_on(sender, parcel)
        return len(before) - len(self._coming)

    def _hand_on(self, sender: int, parcel: Bytes) -> None:
        self.watch.hear(sender)
        if len(parcel) == len(_ALIVE):
            if not self._asks:
                self._send_now(sender, _ALIVE)
            return
        self.inbox.put((sender, parcel))
        if not len(parcel):
            self.watch.leave(sender)
            self._over()

    def _look_around(self) -> None:
        """Ask the others whether they are there, and say who is not any more."""
        if not self.watch.look():
            return
        for rank in self.watch.ask() if self._asks else ():
            self._send_now(rank, _ALIVE)
        for rank in self.watch.lost():
            self.lost.add(rank)
            state.broken = state.lost = True
            self.inbox.put((rank, RankLostError(self._epitaph(rank))))
            self._over()

    def _epitaph(self, rank: int) -> str:
        where = f" on {self.hosts[rank]!r}" if rank in self.hosts else ""
        return (
            f"rank {rank}{where} has said nothing for {self.watch.patience:g} seconds (engine.wait_seconds); "
            "its machine, or the network to it, is gone"
        )
