"""Messages as bytes: a JSON header, then the tensors as they lie in memory; no pickle, copies or rounding.

    8 bytes   length of the header; the first byte says where the body is: 0 is behind the header, another
              number is the place on a shelf, which is memory that both processes share
    header    JSON: plain values, and name, type and shape of every tensor
    body      the tensors, each from a multiple of 64 bytes on, where torch would put it: sums depend on that

Tensors that many messages have in common (a slice that several clients get, a model that is tested in parts)
travel once: both ends remember the last few of them. Task and Update stand on both sides; JSON keeps every
float, NaN too.

The other side is not trusted: what is malformed or claims to be too large is an ExchangeError, before memory
is taken for it.
"""

from __future__ import annotations

import json
import math
import mmap
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from heroes.errors import ExchangeError
from heroes.messages import Assignment, Task, Tensors, Update

B = TypeVar("B", bytearray, memoryview)
V = TypeVar("V")
Bytes = npt.NDArray[np.uint8]
_ALIGNMENT = 64
_BUFFERS = 256  # handed to the system at a time
_REMEMBERED = 8  # sets of common tensors
_LONGEST_HEADER = 64 * 2**20  # bytes
_LENGTH_BITS = 56  # of the 64 before the header; the rest is the place of the body
_ROOM = 16 * 2**20  # bytes of a body that a shelf takes
_SMALL = 2**15  # bytes of a body that goes through a socket as quickly
_MOST_DIMENSIONS = 16
LARGEST_BODY = 8 * 2**30  # bytes
_NAMES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128"
_KINDS: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES.split()}
_Piece = tuple[str, torch.dtype, list[int], list[int], int]  # name, type, shape, strides, where it begins


@dataclass(frozen=True)
class Frame:
    """One message: plain values, its own tensors, and tensors in `common` with other messages.

    The latter are the same mapping in all of them, which nobody changes.
    """

    header: Mapping[str, Any]
    tensors: Tensors
    common: Tensors | None = None

    def group(self, name: str) -> dict[str, Tensor]:
        """The tensors of one group, by their own names."""
        return {
            own: tensor
            for key, tensor in self.tensors.items()
            for group, _, own in [key.partition(":")]
            if group == name
        }


class Shelf:
    """Memory for the bodies of frames, which a process shares with those that it forks: `places` of them.

    One side lays bodies down, the other takes them, so that neither waits until the other has read what a
    socket holds. Pages are taken when they are first used.
    """

    def __init__(self, places: int = 2, room: int = _ROOM) -> None:
        memory = np.frombuffer(mmap.mmap(-1, places * (_ALIGNMENT + room)), np.uint8)
        self._places = memory.reshape(places, _ALIGNMENT + room)  # the first byte: whether something is there
        self._next = 0

    def __len__(self) -> int:
        return len(self._places)

    def lay(self, pieces: Iterable[memoryview], size: int) -> int | None:
        """At which place, counted from 1, the pieces of so many bytes lie now; None if there is no room."""
        place, at = self._places[self._next], _ALIGNMENT
        if at + size > len(place) or place[0]:
            return None
        for piece in pieces:
            place[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        place[0] = 1
        number = self._next + 1
        self._next = number % len(self)
        return number

    def take(self, number: int, into: memoryview) -> None:
        """Fill the buffer with what lies at this place, counted from 1, and free it."""
        place = self._places[number - 1]
        if _ALIGNMENT + len(into) > len(place) or not place[0]:
            raise ExchangeError(f"a frame arrived whose body is not at place {number} of the shelf")
        into[:] = place[_ALIGNMENT : _ALIGNMENT + len(into)].data
        place[0] = 0


class Codec(ABC):
    """Frames to and from bytes; ExchangeError at nonsense.

    Both ends of a connection have one, and remember what messages had in common. `largest` is how many bytes
    of tensors a frame may bring. After an ExchangeError nothing more can be received.
    """

    def __init__(self, largest: int = LARGEST_BODY) -> None:
        self.largest = largest
        self.shelf: Shelf | None = None
        self._sent: list[Tensors] = []
        self._received: list[Tensors] = []
        self._last: tuple[Any, tuple[list[_Piece], int]] = [], ([], 0)  # how a body was described, and lies

    def forget(self) -> None:
        """Forget everything in common: it is sent again when it is next needed."""
        self._sent.clear()

    def pack(self, frame: Frame) -> deque[memoryview]:
        """The bytes of a frame, in pieces; tensors are not copied."""
        place, news = self._place(frame.common)
        tensors = [*(news or ()), *frame.tensors.items()]
        described = [[name, str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in tensors]
        common = [place, None if news is None else len(news)]
        header = json.dumps({"tensors": described, "values": frame.header, "common": common}).encode()
        buffers = deque([memoryview(len(header).to_bytes(8, "big") + header)])
        for _, tensor in tensors:
            flat = raw(tensor).data
            buffers += flat, memoryview(bytes(-len(flat) % _ALIGNMENT))
        return buffers

    def _place(self, common: Tensors | None) -> tuple[int | None, list[tuple[str, Tensor]] | None]:
        """Where the other end finds these tensors, and the tensors themselves if they are new to it."""
        if common is None:
            return None, None
        for place, known in enumerate(self._sent):
            if known is common:
                return place, None
        if len(self._sent) == _REMEMBERED:
            self._sent.clear()
        self._sent.append(common)
        return len(self._sent) - 1, list(common.items())

    def receive(self) -> Frame:
        first = int.from_bytes(self._read(bytearray(8)), "big")
        laid, length = divmod(first, 2**_LENGTH_BITS)
        if length > _LONGEST_HEADER or laid > (0 if self.shelf is None else len(self.shelf)):
            raise ExchangeError(
                f"a frame arrived whose header claims {first} bytes; at most {_LONGEST_HEADER} are taken"
            )
        text = self._read(bytearray(length))
        try:
            header = json.loads(text)
            values, (place, news) = header["values"], header["common"]
            if header["tensors"] != self._last[0]:  # answers of one round are mostly alike
                self._last = header["tensors"], _pieces(header["tensors"], self.largest)
            pieces, size = self._last[1]
            if not isinstance(values, dict) or not self._fits(place, news, len(pieces)):
                raise ValueError("its values are no mapping, or it names common tensors that never came")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ExchangeError(
                f"a frame arrived that is malformed: {error or type(error).__name__}"
            ) from None
        body = torch.empty(size, dtype=torch.uint8)
        if laid and self.shelf is not None:
            self.shelf.take(laid, body.numpy().data)
        else:
            self._read(body.numpy().data)
        flat = {dtype: body.view(dtype) for dtype in {piece[1] for piece in pieces}}
        tensors = [
            (name, flat[dtype].as_strided(shape, strides, start))
            for name, dtype, shape, strides, start in pieces
        ]
        if news is not None:
            self._received[place:] = [dict(tensors[:news])]
        return Frame(values, dict(tensors[news or 0 :]), None if place is None else self._received[place])

    def _fits(self, place: Any, news: Any, tensors: int) -> bool:
        """Whether common tensors are none, known, or the first `news` of those in the frame."""
        known = len(self._received)
        if place is None or news is None:
            return news is None and (place is None or (type(place) is int and 0 <= place < known))
        whole = type(place) is int and type(news) is int
        return whole and 0 <= place <= min(known, _REMEMBERED - 1) and 0 <= news <= tensors

    @abstractmethod
    def _read(self, into: B) -> B:
        """Fill the buffer with the next bytes, or raise EOFError."""


class Channel(Codec):
    """Frames over a connected socket. `receive` raises EOFError when the other side is gone.

    `shelf` is where the bodies of frames may lie that go one of the two ways: the end that lays them down
    sends with `laying`.
    """

    def __init__(
        self, link: socket.socket, largest: int = LARGEST_BODY, *, shelf: Shelf | None = None
    ) -> None:
        super().__init__(largest)
        self.link = link
        self.shelf = shelf

    def fileno(self) -> int:
        return self.link.fileno()

    def send(self, frame: Frame, *, laying: bool = False) -> None:
        buffers = self.pack(frame)
        if laying and self.shelf is not None:
            buffers = _laid(buffers, self.shelf)
        while buffers:
            sent = self.link.sendmsg(list(buffers)[:_BUFFERS])
            while buffers and sent >= len(buffers[0]):
                sent -= len(buffers.popleft())
            if buffers:
                buffers[0] = buffers[0][sent:]

    def _read(self, into: B) -> B:
        rest = memoryview(into)
        while rest:
            count = self.link.recv_into(rest)
            if count == 0:
                raise EOFError
            rest = rest[count:]
        return into

    def close(self) -> None:
        self.link.close()


def _laid(buffers: deque[memoryview], shelf: Shelf) -> deque[memoryview]:
    """What is left to send of a frame whose body lies on the shelf; all of it if it is small or large."""
    header, *body = buffers
    size = sum(map(len, body))
    place = shelf.lay(body, size) if size >= _SMALL else None
    return buffers if place is None else deque([memoryview(bytes([place]) + header[1:])])


class Parcels(Codec):
    """Frames as whole buffers, for those who carry whole messages."""

    def wrap(self, frame: Frame) -> bytes:
        return b"".join(self.pack(frame))

    def unwrap(self, parcel: Bytes) -> Frame:
        self._rest = parcel.data
        return self.receive()

    def _read(self, into: B) -> B:
        view = memoryview(into)
        if len(view) > len(self._rest):
            raise EOFError
        view[:] = self._rest[: len(view)]
        self._rest = self._rest[len(view) :]
        return into


def raw(tensor: Tensor) -> Bytes:
    """The bytes of a tensor in the order of its elements; a view if it lies in memory like that."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def task_frame(task: Task) -> Frame:
    """A task as it travels."""
    values = {
        "assignment": _ASSIGNMENT.dump_python(task.assignment, warnings=False),
        "seed": task.seed,
        "feedback": task.residuals is not None,
    }
    return Frame(values, task.residuals or {}, task.tensors)


@dataclass(frozen=True)
class _Order:
    """The plain values of a task."""

    assignment: Assignment
    seed: int
    feedback: bool


_ORDER = TypeAdapter(_Order)
_ASSIGNMENT = TypeAdapter(Assignment)  # a tenth of the time that dataclasses.asdict takes


def read_task(frame: Frame) -> Task:
    """The task in a frame; ExchangeError where there is none."""
    order = _checked(_ORDER, frame)
    if frame.common is None:
        raise ExchangeError("a task arrived without a model")
    return Task(order.assignment, frame.common, order.seed, frame.tensors if order.feedback else None)


def update_frame(update: Update) -> Frame:
    """An update as it travels; what it does not have is left out."""
    values: dict[str, Any] = {
        "client": update.client,
        "round": update.round,
        "samples": update.samples,
        "loss": update.loss,
        "nonce": update.nonce,
    }
    values |= {"measured": dict(update.measured)} if update.measured else {}
    values |= {"steps": update.steps} if update.steps is not None else {}
    values |= {"feedback": True} if update.residuals is not None else {}
    groups = {"tensors": update.tensors, "residuals": update.residuals or {}, "extras": update.extras}
    return Frame(values, {f"{group}:{name}": t for group, of in groups.items() for name, t in of.items()})


@dataclass(frozen=True)
class _Answer:
    """The plain values of an update."""

    client: int
    round: int
    samples: int
    loss: float
    nonce: int
    measured: dict[str, float] = field(default_factory=dict)
    feedback: bool = False
    steps: float | None = None


_ANSWER = TypeAdapter(_Answer)


def read_update(frame: Frame) -> Update:
    """The update in a frame; ExchangeError where there is none."""
    answer = _checked(_ANSWER, frame)
    return Update(
        client=answer.client,
        round=answer.round,
        tensors=frame.group("tensors"),
        samples=answer.samples,
        loss=answer.loss,
        measured=answer.measured,
        extras=frame.group("extras"),
        residuals=frame.group("residuals") if answer.feedback else None,
        nonce=answer.nonce,
        steps=answer.steps,
    )


def _checked(kind: TypeAdapter[V], frame: Frame) -> V:
    """The plain values of a frame, checked to be of the right kinds."""
    try:
        return kind.validate_python(frame.header)
    except ValidationError as error:
        first = error.errors()[0]
        raise ExchangeError(
            f"a message arrived whose {'.'.join(map(str, first['loc']))} is wrong: {first['msg']}"
        ) from None


def _pieces(described: Any, largest: int) -> tuple[list[_Piece], int]:
    """Where each described tensor lies in the body, and the body's length; or a ValueError."""
    pieces = []
    at = 0
    for name, kind, shape in described:
        if not isinstance(name, str) or kind not in _KINDS:
            raise ValueError(
                f"a tensor of the unknown type {str(kind)[:40]!r}; there are {', '.join(_KINDS)}"
            )
        whole = isinstance(shape, list) and all(type(n) is int and 0 <= n <= largest for n in shape)
        if not whole or len(shape) > _MOST_DIMENSIONS or math.prod(n or 1 for n in shape) > largest:
            raise ValueError(
                f"a tensor of impossible shape; it may have {_MOST_DIMENSIONS} dimensions and {largest} bytes"
            )
        dtype = _KINDS[kind]
        size = math.prod(shape) * dtype.itemsize
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        pieces.append((name, dtype, shape, strides, at // dtype.itemsize))
        at += size + -size % _ALIGNMENT
        if at > largest:
            raise ValueError(f"its tensors have more than {largest} bytes")
    return pieces, at
