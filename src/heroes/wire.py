"""Messages as bytes: a JSON header and the tensors as they lie in memory. Nothing is pickled, copied or rounded on the way.

    8 bytes   length of the header
    header    JSON: plain values, and name, type and shape of every tensor
    body      the tensors, each from a multiple of 64 bytes on, where torch would put it: sums depend on that

Task and Update stand on both sides; JSON keeps every float, NaN too.
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


@dataclass(frozen=True)
class Frame:
    """One message: plain values, and tensors."""

    header: Mapping[str, Any]
    tensors: Tensors

    def group(self, name: str) -> dict[str, Tensor]:
        """The tensors of one group, by their own names."""
        return {own: tensor for key, tensor in self.tensors.items() for group, _, own in [key.partition(":")] if group == name}


class Channel:
    """Frames over a connected socket. `receive` raises EOFError when the other side is gone."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link

    def fileno(self) -> int:
        return self.link.fileno()

    def send(self, frame: Frame) -> None:
        described = [[name, str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in frame.tensors.items()]
        header = json.dumps({"tensors": described, "values": frame.header}).encode()
        buffers = deque([memoryview(len(header).to_bytes(8, "big") + header)])
        for tensor in frame.tensors.values():
            flat = raw(tensor).data
            buffers += flat, memoryview(bytes(-len(flat) % _ALIGNMENT))
        while buffers:
            sent = self.link.sendmsg(list(buffers)[:_BUFFERS])
            while buffers and sent >= len(buffers[0]):
                sent -= len(buffers.popleft())
            if buffers:
                buffers[0] = buffers[0][sent:]

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
        tensors = {name: body[start : start + size].view(dtype).reshape(shape) for name, dtype, shape, start, size in pieces}
        return Frame(header["values"], tensors)

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


def raw(tensor: Tensor) -> Bytes:
    """The bytes of a tensor in the order of its elements; a view where it lies like that already."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def task_frame(task: Task) -> Frame:
    """A task as it travels."""
    values = {"assignment": asdict(task.assignment), "seed": task.seed, "feedback": task.residuals is not None}
    return Frame(values, _grouped("tensors", task.tensors) | _grouped("residuals", task.residuals or {}))


def read_task(frame: Frame) -> Task:
    values = frame.header
    part = values["assignment"]["selection"]
    selection = Selection(part["width"], tuple(part["groups"]), tuple(part["blocks"]))
    assignment = Assignment(**{**values["assignment"], "selection": selection})
    residuals = frame.group("residuals") if values["feedback"] else None
    return Task(assignment, frame.group("tensors"), values["seed"], residuals)


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
