"""What travels between a server and its nodes, both ways.

A message is a `RecordDict` with a `ConfigRecord` of plain values, as one JSON text, and of tensors as bytes,
in as many bits as the configuration says; names and shapes are known to both sides. Flower makes an object of
every record and array, and a request or two of every object: one record is the least. Large groups of tensors
are an `ArrayRecord`, which Flower carries in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from heroes.errors import ExchangeError, said
from heroes.messages import Assignment, Selection, Task, Tensors, Update
from heroes.slices.uploads import Upload, decode_any, parted, unpack_update, upload_bytes
from heroes.transport.wire import raw

Shapes = Mapping[str, tuple[int, ...]]
_HEROES, _VALUES = "heroes", "values"
_FINENESS = ("up_bits", "up_share")
_LARGE = 5 * 2**20  # bytes; Flower carries larger arrays in pieces of so many


def content(values: Mapping[str, Any], **groups: bytes) -> RecordDict:
    """Plain values and groups of tensors as Flower carries them."""
    small = {name: data for name, data in groups.items() if len(data) <= _LARGE}
    large = {name: _array(data) for name, data in groups.items() if len(data) > _LARGE}
    return RecordDict(
        {_HEROES: ConfigRecord({_VALUES: json.dumps(values, separators=(",", ":")), **small}), **large}
    )


def joined(tensors: Tensors | Upload) -> bytes:
    """Tensors, as they are or packed, one after the other in the order of their names."""
    pieces = [tensors[name] for name in sorted(tensors)]
    return b"".join(
        raw(piece.float()).tobytes() if isinstance(piece, Tensor) else piece.joined() for piece in pieces
    )


def _array(data: bytes) -> ArrayRecord:
    return ArrayRecord({"all": Array("uint8", (len(data),), "heroes", data)})


def values_of(records: RecordDict) -> dict[str, Any]:
    """The plain values of a message; ExchangeError where there are none."""
    try:
        values = json.loads(str(records.config_records[_HEROES][_VALUES]))
    except (KeyError, ValueError, RecursionError) as error:
        raise ExchangeError(f"a message arrived without plain values: {said(error)}") from None
    if not isinstance(values, dict):
        raise ExchangeError("a message arrived whose plain values are no mapping")
    return values


def tensors_of(
    records: RecordDict,
    group: str,
    shapes: Shapes,
    bits: int = 32,
    received: Tensors | None = None,
    share: float = 1.0,
) -> dict[str, Tensor]:
    """Tensors of these shapes; where they are rounded or not all there: they, or their differences from
    `received`.
    """
    if (data := data_of(records, group)) is None:
        raise ExchangeError(f"a message arrived without {group}")
    sizes = {name: upload_bytes([shapes[name]], bits, share) for name in sorted(shapes)}
    if len(data) != sum(sizes.values()):
        raise ExchangeError(f"{len(data)} bytes of tensors arrived instead of {sum(sizes.values())}")
    ends = np.cumsum(list(sizes.values())).tolist()
    pieces = {name: data[end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}
    if (bits, share) == (32, 1.0):
        return {name: _tensor(piece, shapes[name]) for name, piece in pieces.items()}
    packed = {name: parted(piece, shapes[name], bits, share) for name, piece in pieces.items()}
    if received is not None:
        return unpack_update(packed, received)
    return {name: decode_any(piece) for name, piece in packed.items()}


def data_of(records: RecordDict, group: str) -> bytes | None:
    """A group of tensors as bytes, if there is one."""
    if (large := records.array_records.get(group)) is not None:
        return large["all"].data if "all" in large else None
    small = records.config_records.get(_HEROES)
    data = None if small is None else small.get(group)
    return data if isinstance(data, bytes) else None


def _tensor(data: bytes, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.empty(shape)  # lies where torch would put it: sums depend on that
    tensor.view(-1).numpy()[:] = np.frombuffer(data, "<f4")
    return tensor


def order_of(task: Task) -> dict[str, Any]:
    """What a client must know of its task, besides the tensors."""
    a = task.assignment
    values = {key: getattr(a, key) for key in ("round", "client", "tau", "learning_rate", "probes", "nonce")}
    values |= {key: found for key in _FINENESS if (found := getattr(a, key)) is not None}
    values |= {key: found for key in ("batch", "last") if (found := getattr(a, key)) != 1}
    values |= {"until": a.until} if a.until is not None else {}
    return {**values, "width": a.selection.width, "seed": task.seed}


def forged(update: Update, assignment: Assignment) -> str | None:
    """Why an update does not come from the node that was given this assignment, or None."""
    said, asked = (update.client, update.round), (assignment.client, assignment.round)
    if said != asked:
        return "it answers as client {} in round {}, but was asked as client {} in round {}".format(
            *said, *asked
        )
    return None if update.nonce == assignment.nonce else "it does not know the nonce of its task"


def told_fineness(values: Mapping[str, Any], assignment: Assignment) -> tuple[int, float]:
    """In how many bits, and with which share of its values, an answer says it travels.

    It may be whole, where a value cannot be rounded; else it must be what the assignment says, if it does.
    """
    bits, share = values["bits"], values.get("share", 1.0)
    if (bits, share) != (32, 1.0):
        wanted = assignment.up_bits or bits, assignment.up_share or share
        if (bits, share) != wanted:
            raise ExchangeError(f"it travels with {bits} bits and a share of {share} instead of {wanted}")
    return bits, share


def digest_of(config: str) -> str:
    """By which a task says which configuration it belongs to: a node may have kept that of another run."""
    return sha256(config.encode()).hexdigest()[:16]


def task_of(values: Mapping[str, Any], tensors: Tensors) -> Task:
    """The task, read back. What the server planned for the client stays with the server."""
    assignment = Assignment(
        round=values["round"],
        client=values["client"],
        device="",
        selection=Selection(values["width"], (), ()),
        tau=values["tau"],
        learning_rate=values["learning_rate"],
        step_seconds=0.0,
        probe_seconds=0.0,
        transfer_seconds=0.0,
        bytes_down=0,
        bytes_up=0,
        probes=values["probes"],
        nonce=values["nonce"],
        up_bits=values.get("up_bits"),
        up_share=values.get("up_share"),
        batch=values.get("batch", 1.0),
        last=values.get("last", 1.0),
        until=values.get("until"),
    )
    return Task(assignment, tensors, values["seed"])
