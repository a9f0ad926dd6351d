"""The other ranks: each does what rank 0 sends it, until rank 0 says that the run is over."""

from __future__ import annotations

import platform
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from heroes.client.training import Trainer, one_thread
from heroes.errors import HeroesError, said
from heroes.transport.engines.mpi.keeping import Keep, kept
from heroes.transport.engines.mpi.post import Post
from heroes.transport.opening import Follow
from heroes.transport.wire import Frame, Parcels
from heroes.transport.workers.keeping import write_model
from heroes.transport.workers.memory import keep_memory
from heroes.transport.workers.setup import Setup
from heroes.transport.workers.work import answer


class Served(SystemExit):
    """The run is over on a rank that is not the server: a clean exit. Catch it to join another run."""

    code = 0


class _Stopped(BaseException):
    """The run ended while this rank was busy."""


def serve(follow: Follow) -> NoReturn:
    """Serve rank 0 until it says that the run is over, then raise `Served`.

    `follow` makes what is needed from rank 0's configuration as text. Rank 0 hears of interrupts, the others
    do not: they leave when it does, or when nothing is heard of it any more.
    """
    server = _Server(follow)
    keep_memory()
    with one_thread(), server.undisturbed():
        server.run()
    raise Served


class _Server:
    def __init__(self, follow: Follow) -> None:
        self.follow = follow
        self.setup: Setup
        self.keep: Keep | None
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
                if (reply := self._reply(frame)) is not None:
                    self._send(reply)
            self._send(Frame({"bye": True}, {}))
        finally:
            self.post.close()

    def _send(self, frame: Frame) -> None:
        self.post.send(0, self.codec.wrap(frame))

    def _reply(self, frame: Frame) -> Frame | None:
        """The answer to a message; nothing if the run ends meanwhile."""
        try:
            self.busy = True  # before the look whether it is over: `_end` looks the other way round
            if self.over.is_set():
                return None
            if "begin" in frame.header:
                return self._begin(frame.header["begin"])
            if "model" in frame.header:
                return self._keep(frame)
            return answer(self.setup, self.trainer, frame)
        except _Stopped:
            return None
        finally:
            self.busy = False

    def _begin(self, text: str) -> Frame:
        try:
            parts = self.follow(text)
            self.post.watch.patience = parts.wait_seconds
            self.keep = kept(parts)
            self.setup = parts.setup()
            self.trainer = Trainer(self.setup.family, self.setup.settings, self.setup.device)
        except HeroesError as error:
            return Frame({"broken": str(error)}, {})
        except Exception as error:  # the user's model and data can fail in any way
            return Frame({"broken": said(error)}, {})
        width = 0 if self.keep is None else self.keep.width
        return Frame({"ready": True, "width": width, "host": platform.node()}, {})

    def _keep(self, frame: Frame) -> Frame:
        assert self.keep is not None
        try:
            write_model(self.setup.family, frame.header["model"], frame.tensors, self.keep.path)
        except OSError as error:
            return Frame({"error": f"cannot write to {str(self.keep.path)!r}: {error.strerror}"}, {})
        return Frame({"kept": True}, {})

    def _end(self) -> None:
        """In the thread of the post: interrupt what is being done, if anything is.

        A rank that waits hears of the end by itself, and may not have its signal handlers yet.
        """
        self.over.set()
        if self.busy and self.thread is threading.main_thread() and self.thread.ident is not None:
            signal.pthread_kill(self.thread.ident, signal.SIGINT)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Ignore interrupts from outside; heed the one from `_end` if there is work to drop."""

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
