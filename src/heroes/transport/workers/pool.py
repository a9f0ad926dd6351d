"""The parent's side: starts workers, keeps them busy, hears answers, replaces those that die or hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess, SpawnProcess
from pathlib import Path

import torch

from heroes.errors import ConfigError, ExchangeError, TrainingError
from heroes.transport.wire import Channel, Frame, Shelf
from heroes.transport.workers.queue import Queue
from heroes.transport.workers.setup import Setup, check_importable, write
from heroes.transport.workers.work import work

_AHEAD = 2  # tasks at a worker: the one it does and the next
_TRIES = 3  # starts in a row that may fail
_START_SECONDS = 120.0  # to import everything, on a busy machine
_MAKE = {"fork": ForkProcess, "spawn": SpawnProcess}


@dataclass
class _Worker:
    process: ForkProcess | SpawnProcess
    channel: Channel
    device: torch.device
    since: float  # when it began what it does now
    places: deque[int] = field(default_factory=deque)  # what it has been sent; it does the first
    ready: bool = False
    stuck: bool = False  # it did not even take a task


class Pool:
    """`size` workers, started when they are first needed. `seconds` is how long one task may take.

    Each trains on one of the devices, by default the setup's, and gets the next task when it is free.
    """

    def __init__(
        self,
        setup: Setup,
        size: int,
        start: str,
        seconds: float,
        devices: Sequence[torch.device] = (),
    ) -> None:
        if multiprocessing.current_process().daemon:
            raise ConfigError(
                "this process may not start others (it is a daemon); use engine.name = 'in_process'"
            )
        if start == "spawn":
            check_importable(setup)
        self.setup = setup
        self.size = size
        self.start = start
        self.seconds = seconds
        self.devices = tuple(devices) or (setup.device,)
        self.workers: list[_Worker] = []
        self._turn = object()  # of the last that began to ask
        self._failures = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def do(self, queue: Queue, make: Callable[[int], Frame]) -> Iterator[tuple[int, Frame | str]]:
        """Answers to all places of the queue as they come; a string says why there is none."""
        turn = self._turn = object()
        for worker in [w for w in self.workers if w.places or not w.process.is_alive()]:
            self._remove(worker)  # does what was broken off, or died while it had nothing to do
        for worker in self.workers:
            worker.channel.forget()
        try:
            while not queue.finished:
                self._fill(queue, make)
                for place, answer in self._hear(queue):
                    queue.done(place)
                    yield place, answer
        finally:
            if self._turn is turn:  # else another began before this was given up, and ended them itself
                for worker in [w for w in self.workers if w.places]:  # nobody waits for them any more
                    self._remove(worker)

    def close(self) -> None:
        """End all workers, and leave nothing behind."""
        while self.workers:
            self._remove(self.workers[-1])
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._failures = 0

    def _fill(self, queue: Queue, make: Callable[[int], Frame]) -> None:
        while len(self.workers) < min(self.size, queue.length):
            self._add()
        for ahead in range(_AHEAD):
            for worker in [w for w in self.workers if w.ready and len(w.places) == ahead]:
                place = queue.take(busy=any(w.places for w in self.workers))
                if place is None:
                    return
                self._send(worker, place, make(place))

    def _send(self, worker: _Worker, place: int, frame: Frame) -> None:
        if not worker.places:
            worker.since = time.monotonic()
        worker.places.append(place)
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died, and `_hear` will notice
            try:
                worker.channel.send(frame)
            except TimeoutError:
                worker.stuck = True
                worker.process.kill()

    def _hear(self, queue: Queue) -> Iterator[tuple[int, Frame | str]]:
        """Wait until something happens, and say what is done or lost."""
        now = time.monotonic()
        nearest = min((self._deadline(w) for w in self.workers if w.places or not w.ready), default=now)
        heard = wait([w.channel.link for w in self.workers], max(0.0, nearest - now))
        for worker in list(self.workers):
            if worker.channel.link in heard:
                yield from self._listen(worker, queue)
            elif (worker.places or not worker.ready) and time.monotonic() > self._deadline(worker):
                yield from self._lose(worker, queue, late=True)

    def _deadline(self, worker: _Worker) -> float:
        return worker.since + (self.seconds if worker.ready else _START_SECONDS)

    def _listen(self, worker: _Worker, queue: Queue) -> Iterator[tuple[int, Frame | str]]:
        try:
            frame = worker.channel.receive()
            if not worker.places and not {"ready", "broken"} & frame.header.keys():
                raise ExchangeError("an answer arrived that nobody had asked for")
        except (EOFError, OSError, ExchangeError) as error:
            late = worker.stuck or isinstance(error, TimeoutError)
            yield from self._lose(
                worker, queue, late=late, said=str(error) if isinstance(error, ExchangeError) else ""
            )
            return
        worker.since = time.monotonic()
        if "broken" in frame.header:
            self.close()
            raise TrainingError(f"a worker process could not start: {frame.header['broken']}")
        if "ready" in frame.header:
            worker.ready, self._failures = True, 0
        else:
            yield worker.places.popleft(), frame.header.get("error") or frame

    def _lose(self, worker: _Worker, queue: Queue, late: bool, said: str = "") -> Iterator[tuple[int, str]]:
        """A worker ended, and its first task with it; others do the rest. `said` is why we ended it."""
        code = self._remove(worker)
        ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        ended = f"was ended: {said}" if said else ended
        self._failures += not worker.ready
        if self._failures >= _TRIES:
            self.close()
            raise TrainingError(
                f"worker processes do not start; the last {ended}. engine.name = 'in_process' does without "
                "them"
            )
        for place in reversed(list(worker.places)[1:]):
            queue.put_back(place)
        if worker.places:
            reason = f"took longer than {self.seconds:g} seconds" if late else f"its worker process {ended}"
            yield worker.places[0], reason

    def _add(self) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(max(self.seconds, 1.0))
        foreign = [ours, *(w.channel.link for w in self.workers)] if self.start == "fork" else []
        taken = [w.device for w in self.workers]
        device = min(self.devices, key=taken.count)  # the first of those with the fewest workers
        shelf = None
        with suppress(OSError):  # a system that gives no more memory; and a spawned process shares none
            shelf = Shelf(_AHEAD) if self.start == "fork" else None
        process = _MAKE[self.start](
            target=work,
            args=(theirs, self._source(), foreign, device, shelf),
            daemon=True,
            name="heroes-worker",
        )
        try:
            with _undisturbed():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()  # only the worker holds it now: when it ends, we read the end
        self.workers.append(_Worker(process, Channel(ours, shelf=shelf), device, time.monotonic()))

    def _source(self) -> Setup | Path:
        if self.start == "fork":
            return self.setup
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="heroes-")
            write(self.setup, Path(self._folder.name))
        return Path(self._folder.name)

    def _remove(self, worker: _Worker) -> int:
        """End a worker; how it ended. It holds nothing that would be worth a farewell."""
        self.workers.remove(worker)
        worker.process.kill()  # no matter if it has ended by itself: its exit code stands from then on
        worker.process.join()
        code = worker.process.exitcode or 0
        worker.process.close()
        worker.channel.close()
        return code


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Start a process so that Ctrl-C does not reach it before it can say that it does not want it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns that a fork copies one thread of many: the worker uses no other and takes no
            # lock of theirs
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
