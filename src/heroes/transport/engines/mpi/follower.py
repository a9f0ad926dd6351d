"""The other ranks: each does what rank 0 sends it, until that says that it is over."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from heroes.client.training import Trainer, one_thread
from heroes.errors import HeroesError, said
from heroes.transport.engines.mpi.post import Post
from heroes.transport.wire import Frame, Parcels
from heroes.transport.workers.keeping import write_model
from heroes.transport.workers.setup import Setup
from heroes.transport.workers.work import answer


class Served(SystemExit):
    """The run is over, on a rank that is not the server. It ends the process well; catch it to take part in
    another run.
    """

    code = 0


@dataclass(frozen=True)
class Service:
    """What a rank needs to serve, and where it keeps the final model at which width: nowhere at 0."""

    setup: Setup
    width: int = 0
    keep: Path | None = None


class _Stopped(BaseException):
    """It is over in the midst of something."""


def serve(prepare: Callable[[str], Service]) -> NoReturn:
    """Serve rank 0 until it says that it is over; then raise `Served`. `prepare` makes of rank 0's text what
    is needed.

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
        """Interrupts from outside are not heard; the one from `_end` is, where there is something to let go
        of.
        """

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
