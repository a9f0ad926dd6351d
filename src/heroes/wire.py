"""Messages as bytes: a JSON header and the tensors as they lie in memory. Nothing is pickled, copied or rounded on the way.

    8 bytes   length of the header
    header    JSON: plain values, and name, type and shape of every tensor
    body      the tensors, each from a multiple of 64 bytes on, where torch would put it: sums depend on that

Tensors that many messages have in common (a slice that several clients get, a model that is tested in parts) travel once: both
ends remember the last few of them. Task and Update stand on both sides; JSON keeps every float, NaN too.
"""

from __future__ import annotations

import json
import math
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heroes.messages import Assignment, Estimates, Selection, Task, Tensors, Update

B = TypeVar("B", bytearray, memoryview)
Bytes = npt.NDArray[np.uint8]
_ALIGNMENT = 64
_BUFFERS = 256  # handed to the system at a time
_REMEMBERED = 8  # sets of common tensors


@dataclass(frozen=True)
class Frame:
    """One message: plain values, tensors, and tensors that other messages have too: the same mapping, nobody changes it."""

    header: Mapping[str, Any]
    tensors: Tensors
    common: Tensors | None = None

    def group(self, name: str) -> dict[str, Tensor]:
        """The tensors of one group, by their own names."""
        return {own: tensor for key, tensor in self.tensors.items() for group, _, own in [key.partition(":")] if group == name}


class Codec:
    """Frames to and from bytes. Both ends of a connection have one, and remember what messages had in common."""

    def __init__(self) -> None:
        self._sent: list[Tensors] = []
        self._received: list[Tensors] = []

    def forget(self) -> None:
        """Keep nothing for later; what is common to the messages from here on is sent anew."""
        self._sent.clear()

    def pack(self, frame: Frame) -> deque[memoryview]:
        """The bytes of a frame, in pieces; tensors are not copied."""
        place, news = self._place(frame.common)
        described = [[name, str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in (*news, *frame.tensors.items())]
        header = json.dumps({"tensors": described, "values": frame.header, "common": [place, len(news)]}).encode()
        buffers = deque([memoryview(len(header).to_bytes(8, "big") + header)])
        for _, tensor in (*news, *frame.tensors.items()):
            flat = raw(tensor).data
            buffers += flat, memoryview(bytes(-len(flat) % _ALIGNMENT))
        return buffers

    def _place(self, common: Tensors | None) -> tuple[int | None, list[tuple[str, Tensor]]]:
        """Where the other end has these tensors, and those of them that it does not have yet: all or none."""
        if common is None:
            return None, []
        for place, known in enumerate(self._sent):
            if known is common:
                return place, []
        if len(self._sent) == _REMEMBERED:
            self._sent.clear()
        self._sent.append(common)
        return len(self._sent) - 1, list(common.items())

    def receive(self) -> Frame:
        header = json.loads(self._read(bytearray(int.from_bytes(self._read(bytearray(8)), "big"))))
        pieces = []
        at = 0
        for name, kind, shape in header["tensors"]:
            dtype = getattr(torch, kind)
            size = math.prod(shape) * dtype.itemsize
            pieces.append((name, dtype, shape, at, size))
            at += size + -size % _ALIGNMENT
        body = torch.empty(at, dtype=torch.uint8)
        self._read(body.numpy().data)
        tensors = [(name, body[start : start + size].view(dtype).reshape(shape)) for name, dtype, shape, start, size in pieces]
        place, news = header["common"]
        if news:
            self._received[place:] = [dict(tensors[:news])]
        return Frame(header["values"], dict(tensors[news:]), None if place is None else self._received[place])

    def _read(self, into: B) -> B:
        """Fill this with the next bytes, or raise EOFError."""
        raise NotImplementedError


class Channel(Codec):
    """Frames over a connected socket. `receive` raises EOFError when the other side is gone."""

    def __init__(self, link: socket.socket) -> None:
        super().__init__()
        self.link = link

    def fileno(self) -> int:
        return self.link.fileno()

    def send(self, frame: Frame) -> None:
        buffers = self.pack(frame)
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
    """The bytes of a tensor in the order of its elements; a view where it lies like that already."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def task_frame(task: Task) -> Frame:
    """A task as it travels."""
    values = {"assignment": asdict(task.assignment), "seed": task.seed, "feedback": task.residuals is not None}
    return Frame(values, task.residuals or {}, task.tensors)


def read_task(frame: Frame) -> Task:
    values = frame.header
    part = values["assignment"]["selection"]
    selection = Selection(part["width"], tuple(part["groups"]), tuple(part["blocks"]))
    assignment = Assignment(**{**values["assignment"], "selection": selection})
    assert frame.common is not None
    return Task(assignment, frame.common, values["seed"], frame.tensors if values["feedback"] else None)


def update_frame(update: Update) -> Frame:
    """An update as it travels."""
    values = {
        "client": update.client,
        "round": update.round,
        "samples": update.samples,
        "estimates": asdict(update.estimates),
        "labels": update.labels,
        "feedback": update.residuals is not None,
    }
    gradient = {} if update.gradient is None else {"gradient:": update.gradient}
    return Frame(values, _grouped("tensors", update.tensors) | _grouped("residuals", update.residuals or {}) | gradient)


def read_update(frame: Frame) -> Update:
    values = frame.header
    return Update(
        client=values["client"],
        round=values["round"],
        tensors=frame.group("tensors"),
        samples=values["samples"],
        estimates=Estimates(**values["estimates"]),
        residuals=frame.group("residuals") if values["feedback"] else None,
        gradient=frame.tensors.get("gradient:"),
        labels=tuple(values["labels"]),
    )


def _grouped(group: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{group}:{name}": tensor for name, tensor in tensors.items()}
