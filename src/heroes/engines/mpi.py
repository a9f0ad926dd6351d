"""Clients on the ranks of an MPI job: rank 0 is the server, every other rank trains for it.

Messages are the frames of `wire`, each in one buffer; nothing is pickled. Rank 0 tells the others to begin, with the
configuration as text; each sets itself up, says that it is ready, answers what it is sent, and leaves when it is told to stop.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from heroes.data.examples import FederatedData
from heroes.errors import ConfigError, ExchangeError, HeroesError, TrainingError
from heroes.local_training import Trainer, one_thread, said
from heroes.messages import Assignment, Tensors
from heroes.wire import Bytes, Frame, Parcels
from heroes.workers.engine import WorkerEngine, steps_and_width
from heroes.workers.keeping import write_model
from heroes.workers.queue import Queue
from heroes.workers.setup import Setup
from heroes.workers.work import answer

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Request

_TAG = 7747  # of all messages; an empty one says that it is over
_AHEAD = 2  # tasks at a rank: the one it does and the next
_LARGEST = 2**31 - 1  # bytes in a message: MPI counts with 32 bits
_START_SECONDS = 600.0  # to read the data, on a slow disk
_STOP_SECONDS = 10.0  # to leave
_SHORT, _LONG = 1e-4, 2e-3  # seconds between two looks for messages
_MODEL = -1  # the place of the final model, which stands in no queue


class Served(SystemExit):
    """The run is over, on a rank that is not the server. It ends the process well; catch it to take part in another run."""

    code = 0


class MpiEngine(WorkerEngine):
    """Trains tasks on the other ranks, which have the data and a model of every width from one round to the next.

    `begin` is what they get to set themselves up. `task_seconds`: a client that takes longer is given up; its rank gets
    nothing more until it answers. `close` lets them go; another engine may begin after that.
    """

    def __init__(
        self,
        data: FederatedData,
        batch_size: int = 500,
        *,
        begin: str = "",
        task_seconds: float = 600.0,
        cost: Callable[[Assignment], float] = steps_and_width,
    ) -> None:
        self.ranks = ranks()
        self.ranks.seconds = task_seconds
        self.ranks.begin(begin)
        super().__init__(self.ranks, data, batch_size, cost)


# who is who


@cache
def _world() -> Comm:
    """All ranks. MPI starts here, where it is first needed, and ends with the process if all ranks are there to end it."""
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # a rank that is stuck would let the others wait for ever
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ConfigError(f"engine.name is 'mpi' but there is no MPI ({reason}): pip install 'heroes-fl[mpi]'") from None
    atexit.register(lambda: None if _open.broken or MPI.Is_finalized() else MPI.Finalize())
    sys.excepthook = _failing(sys.excepthook)
    return MPI.COMM_WORLD


def _failing(hook: Callable[..., object]) -> Callable[..., object]:
    """A process that ends with a traceback does not wait for the others: mpiexec ends them."""

    def fail(*error: Any) -> None:
        _open.broken = True
        hook(*error)

    return fail


def rank() -> int:
    """The number of this process; 0 is the server."""
    return _world().rank


@dataclass
class _Open:
    """What this process has to do with the others at present: MPI has one world for everybody in a process."""

    ranks: Ranks | None = None
    broken: bool = False  # some rank did not leave


_open = _Open()


def ranks() -> Ranks:
    """The other ranks, for rank 0; they wait until they are told to begin or to stop."""
    if _open.broken:
        raise TrainingError("a rank did not leave at the end of the last run; this job can do no other")
    if _open.ranks is None:
        if _world().size < 2:
            raise ConfigError(
                "engine.name is 'mpi' but there is only one process; start several, the first leads and the others train, for "
                "example mpiexec -n 5 heroes run digits --engine mpi; or say --engine processes"
            )
        _open.ranks = Ranks(_world().size - 1)
    return _open.ranks


@contextmanager
def leading() -> Iterator[None]:
    """Rank 0 leads: whatever happens inside, the other ranks are told to stop at the end."""
    led = ranks()
    try:
        yield
    finally:
        led.close()


# how messages travel


class Post:
    """Messages to and from other ranks. A thread makes every MPI call, so that they travel while this process computes.

    `over` is called there when rank 0 says that it is over.
    """

    def __init__(self, over: Callable[[], None] = lambda: None) -> None:
        from mpi4py import MPI

        self.world = _world()
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
        self._thread.join(_STOP_SECONDS)
        _open.broken |= self._thread.is_alive()

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


# rank 0


@dataclass
class _Rank:
    number: int
    codec: Parcels = field(default_factory=Parcels)
    places: deque[int | None] = field(default_factory=deque)  # what it has been sent; None is what nobody waits for any more
    since: float = 0.0  # when it began what it does now
    width: int = 0  # of the final model, if it wants one
    ready: bool = False
    late: bool = False  # it gets nothing until it answers
    gone: bool = False


class Ranks:
    """`size` other ranks, which have a task each and the next one. A client that takes longer than `seconds` is given up."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.seconds = 600.0
        self.post = Post()
        self.all = [_Rank(number) for number in range(1, size + 1)]

    def begin(self, text: str) -> None:
        """Let all of them set themselves up."""
        for rank in self.all:
            self._send(rank, Frame({"begin": text}, {}))
            rank.since = time.monotonic()

    def do(self, queue: Queue, make: Callable[[int], Frame]) -> Iterator[tuple[int, Frame | str]]:
        """Answers to all places of the queue as they come; a string says why there is none."""
        for rank in self.all:
            rank.codec.forget()
        try:
            while not queue.finished:
                self._fill(queue, make)
                for _, place, found in self._hear(queue):
                    queue.done(place)
                    yield place, found
        finally:
            for rank in self.all:
                rank.places = deque(None for _ in rank.places)

    def hand_out(self, tensors: Callable[[int], Tensors]) -> None:
        """Give every rank that wants it the final model at its width; when this returns, they have written it."""
        nothing = Queue([], 1)
        while any(not rank.ready and not rank.late for rank in self.all):
            list(self._hear(nothing))
        for rank in self.all:
            if rank.width:
                self._task(rank, _MODEL, Frame({"model": rank.width}, tensors(rank.width)))
        while any(_MODEL in rank.places for rank in self.all):
            for number, _, found in self._hear(nothing):
                if isinstance(found, str):
                    raise TrainingError(f"rank {number} could not keep the final model: {found}")

    def close(self) -> None:
        """Let them leave. One that does not within seconds is left to mpiexec, which ends it when this process has ended."""
        if _open.ranks is not self:
            return
        _open.ranks = None
        try:
            for rank in self.all:
                self.post.send(rank.number, b"")
            deadline = time.monotonic() + _STOP_SECONDS
            with suppress(Empty, TrainingError):
                while not all(rank.gone for rank in self.all):
                    number, parcel = self.post.receive(max(0.0, deadline - time.monotonic()))
                    rank = self.all[number - 1]
                    rank.gone = "bye" in rank.codec.unwrap(parcel).header
        finally:
            self.post.close()
            _open.broken |= not all(rank.gone for rank in self.all)

    def _fill(self, queue: Queue, make: Callable[[int], Frame]) -> None:
        for ahead in range(_AHEAD):
            for rank in [r for r in self.all if r.ready and not r.late and len(r.places) == ahead]:
                place = queue.take(busy=any(set(r.places) - {None} for r in self.all))
                if place is None:
                    return
                self._task(rank, place, make(place))

    def _task(self, rank: _Rank, place: int, frame: Frame) -> None:
        if not rank.places:
            rank.since = time.monotonic()
        rank.places.append(place)
        self._send(rank, frame)

    def _send(self, rank: _Rank, frame: Frame) -> None:
        self.post.send(rank.number, rank.codec.wrap(frame))

    def _hear(self, queue: Queue) -> Iterator[tuple[int, int, Frame | str]]:
        """Wait until something happens, and say which rank has done or lost what."""
        now = time.monotonic()
        awaited = [rank for rank in self.all if not rank.late and (rank.places or not rank.ready)]
        nearest = min((self._deadline(rank) for rank in awaited), default=now + self.seconds)
        try:
            number, parcel = self.post.receive(max(0.0, nearest - now))
        except Empty:
            if not awaited:
                raise TrainingError(f"all ranks are busy with clients that took longer than {self.seconds:g} seconds") from None
            for rank in awaited:
                if time.monotonic() >= self._deadline(rank):
                    yield from self._give_up(rank, queue)
            return
        yield from self._note(self.all[number - 1], parcel)

    def _deadline(self, rank: _Rank) -> float:
        return rank.since + (self.seconds if rank.ready else _START_SECONDS)

    def _note(self, rank: _Rank, parcel: Bytes) -> Iterator[tuple[int, int, Frame | str]]:
        frame = rank.codec.unwrap(parcel)
        rank.since, rank.late = time.monotonic(), False
        if "broken" in frame.header:
            raise TrainingError(f"rank {rank.number} could not start: {frame.header['broken']}")
        if "ready" in frame.header:
            rank.ready, rank.width = True, frame.header["width"]
        elif (place := rank.places.popleft()) is not None:
            yield rank.number, place, frame.header.get("error") or frame

    def _give_up(self, rank: _Rank, queue: Queue) -> Iterator[tuple[int, int, str]]:
        """What it does now is lost, if anybody waits for it; others will do the rest."""
        places, rank.late = list(rank.places), True
        rank.places = deque(None for _ in places)
        for place in reversed(places[1:]):
            if place is not None:
                queue.put_back(place)
        if places and places[0] is not None:
            yield rank.number, places[0], f"took longer than {self.seconds:g} seconds"


# the other ranks


@dataclass(frozen=True)
class Service:
    """What a rank needs to serve, and where it keeps the final model at which width: nowhere at 0."""

    setup: Setup
    width: int = 0
    keep: Path | None = None


class _Stopped(BaseException):
    """It is over in the midst of something."""


def serve(prepare: Callable[[str], Service]) -> NoReturn:
    """Serve rank 0 until it says that it is over; then raise `Served`. `prepare` makes of rank 0's text what is needed.

    Rank 0 hears of interrupts, the others do not: they leave when it does.
    """
    server = _Server(prepare)
    with one_thread(), server.undisturbed():
        server.run()
    raise Served


class _Server:
    def __init__(self, prepare: Callable[[str], Service]) -> None:
        self.prepare = prepare
        self.service: Service
        self.trainer: Trainer
        self.codec = Parcels()
        self.thread = threading.current_thread()
        self.busy = False
        self.over = threading.Event()
        self.post = Post(self._end)

    def run(self) -> None:
        try:
            while len(parcel := self.post.receive()[1]):
                frame = self.codec.unwrap(parcel)
                if not self.over.is_set() and (reply := self._reply(frame)) is not None:
                    self._send(reply)
            self._send(Frame({"bye": True}, {}))
        finally:
            self.post.close()

    def _send(self, frame: Frame) -> None:
        self.post.send(0, self.codec.wrap(frame))

    def _reply(self, frame: Frame) -> Frame | None:
        """What comes of a message; nothing if it is over meanwhile."""
        try:
            self.busy = True
            if "begin" in frame.header:
                return self._begin(frame.header["begin"])
            if "model" in frame.header:
                return self._keep(frame)
            return answer(self.service.setup, self.trainer, frame)
        except _Stopped:
            return None
        finally:
            self.busy = False

    def _begin(self, text: str) -> Frame:
        try:
            self.service = self.prepare(text)
            setup = self.service.setup
            self.trainer = Trainer(setup.family, setup.settings, setup.device)
        except HeroesError as error:
            return Frame({"broken": str(error)}, {})
        except Exception as error:  # the user's model and data can fail in any way
            return Frame({"broken": said(error)}, {})
        return Frame({"ready": True, "width": self.service.width}, {})

    def _keep(self, frame: Frame) -> Frame:
        assert self.service.keep is not None
        try:
            write_model(self.service.setup.family, frame.header["model"], frame.tensors, self.service.keep)
        except OSError as error:
            return Frame({"error": f"cannot write to {str(self.service.keep)!r}: {error.strerror}"}, {})
        return Frame({"kept": True}, {})

    def _end(self) -> None:
        """In the thread of the post: let go of what is being done."""
        self.over.set()
        if self.thread is threading.main_thread() and self.thread.ident is not None:
            signal.pthread_kill(self.thread.ident, signal.SIGINT)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Interrupts from outside are not heard; the one from `_end` is, where there is something to let go of."""

        def hear(number: int, frame: object) -> None:
            if self.busy and self.over.is_set():
                raise _Stopped

        main = self.thread is threading.main_thread()
        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM) if main}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
