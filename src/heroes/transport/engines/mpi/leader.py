"""Rank 0: it hands tasks to the other ranks, longest first, and takes their answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty

from heroes.errors import ConfigError, TrainingError, printable
from heroes.messages import Tensors
from heroes.transport.engines.mpi.follower import serve
from heroes.transport.engines.mpi.keeping import Keep, kept
from heroes.transport.engines.mpi.post import STOP_SECONDS, Post
from heroes.transport.engines.mpi.world import state, world
from heroes.transport.opening import Follow, Opener, Parts
from heroes.transport.wire import Bytes, Frame, Parcels
from heroes.transport.workers.engine import WorkerEngine
from heroes.transport.workers.keeping import write_model
from heroes.transport.workers.queue import Queue

_AHEAD = 2  # tasks at a rank: the one it does and the next
_START_SECONDS = 600.0  # to read the data, on a slow disk
_LOOK = 1.0  # seconds between two looks at who is silent
_MODEL = -1  # the place of the final model, which stands in no queue


class MpiEngine(WorkerEngine):
    """Trains tasks on the other ranks, which keep the data and a model of every width.

    A client that takes longer than `parts.task_seconds` is given up; its rank gets nothing more until it
    answers. A rank that says nothing for `parts.wait_seconds`, not even that it lives, ends the run.
    `keep` is where rank 0 itself keeps the final model.
    """

    def __init__(self, ranks: Ranks, parts: Parts, keep: Keep | None = None) -> None:
        super().__init__(ranks, parts.data, parts.batch_size, parts.cost, parts.trainer.settings.objective)
        self.ranks = ranks
        self.family = parts.trainer.family
        self.keep = keep

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Every rank writes the model that it would use, if there is a place for it."""
        if self.keep is not None:
            self.ranks.hand_out(tensors_of_width)
            write_model(self.family, self.keep.width, tensors_of_width(self.keep.width), self.keep.path)


@contextmanager
def leading(follow: Follow) -> Iterator[Opener]:
    """Yields what opens the engine, on rank 0; at the end the other ranks are told to stop.

    The others serve here, with what `follow` makes of rank 0's configuration, and never come out.
    """
    if world().rank > 0:
        serve(follow)
    with led() as ranks:
        yield partial(opened, ranks=ranks)


@contextmanager
def led() -> Iterator[Ranks]:
    """Yields the other ranks, on rank 0; they wait until told to begin, and stop at the end."""
    if state.broken:
        raise TrainingError("a rank did not leave at the end of the last run; this job can do no other")
    if world().size < 2:
        raise ConfigError(
            "engine.name is 'mpi' but there is only one process; start several, the first leads and the "
            "others train, for example mpiexec -n 5 heroes run digits --engine mpi; or say --engine "
            "processes"
        )
    with closing(Ranks(world().size - 1)) as ranks:
        yield ranks


@contextmanager
def opened(parts: Parts, ranks: Ranks | None = None) -> Iterator[MpiEngine]:
    """The engine, after these ranks (all by default) have been told to begin."""
    with led() if ranks is None else nullcontext(ranks) as there:
        keep = kept(parts)
        there.begin(parts.config, parts.task_seconds, parts.wait_seconds)
        yield MpiEngine(there, parts, keep)


@dataclass
class _Rank:
    number: int
    codec: Parcels = field(default_factory=Parcels)
    # what it has been sent; None is what nobody waits for any more
    places: deque[int | None] = field(default_factory=deque)
    since: float = 0.0  # when it began what it does now
    width: int = 0  # of the final model, if it wants one
    ready: bool = False
    late: bool = False  # it gets nothing until it answers
    gone: bool = False


class Ranks:
    """`size` other ranks, each with a task and the next one; after `seconds` a client is given up."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.seconds = 600.0
        self.post = Post()
        self.all = [_Rank(number) for number in range(1, size + 1)]

    def begin(self, text: str, seconds: float, silence: float) -> None:
        """Let all ranks set themselves up from the configuration as text.

        Clients get so many seconds, and a rank may be silent for so many.
        """
        self.seconds, self.post.watch.patience = seconds, silence
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
        """Give every rank that wants it the final model at its width; return when they have it."""
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
        """Let the ranks leave; mpiexec ends those that do not within seconds."""
        try:
            for rank in self.all:
                self.post.send(rank.number, b"")
            deadline = time.monotonic() + STOP_SECONDS
            with suppress(Empty, TrainingError):
                while not all(rank.gone or rank.number in self.post.lost for rank in self.all):
                    number, parcel = self.post.receive(max(0.0, deadline - time.monotonic()))
                    rank = self.all[number - 1]
                    rank.gone = "bye" in rank.codec.unwrap(parcel).header
        finally:
            self.post.close()
            state.broken |= not all(rank.gone for rank in self.all)

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
        begun = time.monotonic()
        while True:
            awaited = self._awaited()
            nearest = min(map(self._deadline, awaited), default=begun + self.seconds)
            try:
                number, parcel = self.post.receive(min(_LOOK, max(0.0, nearest - time.monotonic())))
            except Empty:
                if time.monotonic() >= nearest:
                    yield from self._overdue(awaited, queue)
                    return
            else:
                yield from self._note(self.all[number - 1], parcel)
                return

    def _awaited(self) -> list[_Rank]:
        """Who is to answer. If nothing at all is heard of a rank, its client's time begins anew."""
        awaited = [rank for rank in self.all if not rank.late and (rank.places or not rank.ready)]
        for rank in awaited:
            if self.post.watch.quiet(rank.number):
                rank.since = time.monotonic()
        return awaited

    def _overdue(self, awaited: list[_Rank], queue: Queue) -> Iterator[tuple[int, int, str]]:
        if not awaited:
            raise TrainingError(
                f"all ranks are busy with clients that took longer than {self.seconds:g} seconds"
            )
        for rank in awaited:
            if time.monotonic() >= self._deadline(rank):
                yield from self._give_up(rank, queue)

    def _deadline(self, rank: _Rank) -> float:
        return rank.since + (self.seconds if rank.ready else _START_SECONDS)

    def _note(self, rank: _Rank, parcel: Bytes) -> Iterator[tuple[int, int, Frame | str]]:
        frame = rank.codec.unwrap(parcel)
        rank.since, rank.late = time.monotonic(), False
        if "broken" in frame.header:
            raise TrainingError(f"rank {rank.number} could not start: {frame.header['broken']}")
        if "ready" in frame.header:
            rank.ready, rank.width = True, frame.header["width"]
            self.post.hosts[rank.number] = printable(frame.header["host"], 100)
        elif (place := rank.places.popleft()) is not None:
            yield rank.number, place, frame.header.get("error") or frame

    def _give_up(self, rank: _Rank, queue: Queue) -> Iterator[tuple[int, int, str]]:
        """Give up what this rank is doing, if anybody waits for it; others do the rest."""
        places, rank.late = list(rank.places), True
        rank.places = deque(None for _ in places)
        for place in reversed(places[1:]):
            if place is not None:
                queue.put_back(place)
        if places and places[0] is not None:
            yield rank.number, places[0], f"took longer than {self.seconds:g} seconds"
