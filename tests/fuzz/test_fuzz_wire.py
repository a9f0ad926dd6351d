"""Whatever arrives is a frame, an end or an ExchangeError; what claims to be huge takes no memory."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

import pytest
import torch
from fuzzing import TREES, little_memory, mutated_bytes, mutated_tree
from hypothesis import strategies as st

from heroes.errors import ExchangeError, HeroesError
from heroes.messages import Assignment, Selection, Task, Update
from heroes.transport.wire import Channel, Frame, read_task, read_update, task_frame, update_frame

ASSIGNMENT = Assignment(
    7, 3, "board", Selection(2, (0, 2), (0, 2, 6, 8)), 5, 0.1, 1.0, 0.5, 2.0, 10, 20, True
)
TASK = task_frame(
    Task(ASSIGNMENT, {"w": torch.ones(2, 3), "b": torch.zeros(())}, 2**62, {"w": torch.ones(2)})
)
UPDATE = update_frame(
    Update(
        3,
        7,
        {"w": torch.ones(4)},
        12,
        0.5,
        {"variance": float("nan")},
        {"gradient": torch.ones(2), "labels": torch.tensor([4, 9])},
        {"w": torch.ones(4)},
    )
)


def sent(*frames: Frame) -> bytes:
    """The frames as they go over the wire."""
    here, there = socket.socketpair()
    with here, there:
        channel = Channel(here)
        for frame in frames:
            channel.send(frame)
        return there.recv(1 << 20)


BYTES = [
    sent(TASK),
    sent(UPDATE),
    sent(TASK, UPDATE, TASK, TASK),
    sent(Frame({"ready": True}, {})),
    sent(Frame({}, {}, {})),
]
LENGTH = int.from_bytes(BYTES[0][:8], "big")
HEADER = json.loads(BYTES[0][8 : 8 + LENGTH])
BODY = BYTES[0][8 + LENGTH :]


def framed(header: object, body: bytes = BODY) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "big") + text + body


def received(content: bytes, largest: int = 1 << 20) -> list[Frame]:
    """All frames up to the end, over a real socket."""
    here, there = socket.socketpair()
    with here, there:
        here.sendall(content[:100_000])  # what fits into its buffer
        here.close()
        channel, frames = Channel(there, largest), []
        with suppress(EOFError):
            while True:
                frames.append(channel.receive())
        return frames


def wire(content):
    with suppress(HeroesError):
        for frame in received(content):
            for read in (read_task, read_update):
                with suppress(ExchangeError):
                    read(frame)


def test_bytes(fuzz):
    fuzz(wire, mutated_bytes(BYTES))


def test_headers(fuzz):
    shapes = st.lists(st.integers(-1, 9) | st.sampled_from([0, 2**20, 2**33, 2**63, 10**400]), max_size=5)
    kinds = st.sampled_from(
        ["float32", "bool", "qint8", "uint1", "float8_e4m3fn", "load", "Tensor", "", None, [], 3]
    )
    tensors = st.lists(st.tuples(st.text(max_size=3), kinds, shapes | TREES), max_size=3)
    places = st.tuples(st.none() | st.integers(-2, 9) | TREES, st.none() | st.integers(-2, 5))
    made = st.fixed_dictionaries({"tensors": tensors, "values": TREES, "common": places})
    two = st.builds(
        lambda one, other: framed(one) + framed(other), mutated_tree(HEADER), mutated_tree(HEADER)
    )
    fuzz(wire, two | made.map(framed))


def values(header):
    frame = Frame(header, TASK.tensors, TASK.common)
    for read in (read_task, read_update):
        with suppress(ExchangeError):
            read(frame)


def test_values(fuzz):
    fuzz(values, mutated_tree(dict(TASK.header)) | mutated_tree(dict(UPDATE.header)))


def described(kind="float32", shape=(2,), common=(None, None), **more):
    return {"tensors": [["w", kind, shape]], "values": {}, "common": common} | more


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ((2**26 + 1).to_bytes(8, "big"), "claims 67108865 bytes; at most 67108864"),
        (b"\xff" * 8, "at most 67108864 are taken"),
        ((4).to_bytes(8, "big") + b"nope", "malformed"),
        ((4).to_bytes(8, "big") + b"\xff\xfe\xfd\xfc", "malformed"),
        ((50_000).to_bytes(8, "big") + b"[" * 50_000, "malformed"),
        (framed([]), "malformed"),
        (framed({}), "malformed: 'values'"),
        (framed(described("qint8")), "unknown type 'qint8'; there are float32"),
        (framed(described("load")), "unknown type 'load'"),
        (framed(described(["float32"])), "malformed"),
        (framed(described(shape=[-1])), "impossible shape"),
        (framed(described(shape=[2**40])), "impossible shape"),
        (framed(described(shape=[2**20, 2**20])), "impossible shape"),
        (framed(described(shape=[0, 2**33, 2**33])), "impossible shape"),
        (framed(described(shape=[1] * 17)), "impossible shape"),
        (framed(described(shape=[10**400] * 100)), "impossible shape"),
        (framed(described(shape="")), "impossible shape"),
        (framed(described("float64", [2**30 + 1])), "more than 8589934592 bytes"),
        (framed(described(tensors=[["w", "uint8", [2**32]]] * 3)), "more than 8589934592 bytes"),
        (framed(described(common=[0, None])), "common tensors that never came"),
        (framed(described(common=[1, 1])), "common tensors that never came"),
        (framed(described(common=[-1, 1])), "common tensors that never came"),
        (framed(described(common=[0, 2])), "common tensors that never came"),
        (framed(described(common=[None, 1])), "common tensors that never came"),
        (framed(described(values=[])), "no mapping"),
    ],
)
def test_a_frame_that_cannot_be_is_refused_before_memory_is_taken(content, said):
    with little_memory(), pytest.raises(ExchangeError, match=said):
        received(content, largest=8 * 2**30)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({}, "assignment is wrong: Field required"),
        (TASK.header | {"seed": "x"}, "seed is wrong"),
        (TASK.header | {"assignment": TASK.header["assignment"] | {"tau": None}}, "assignment.tau is wrong"),
    ],
)
def test_values_that_are_no_task_are_named(header, said):
    with pytest.raises(ExchangeError, match=said):
        read_task(Frame(header, {}, {}))


def test_a_task_needs_a_model_and_an_update_its_numbers():
    with pytest.raises(ExchangeError, match="without a model"):
        read_task(Frame(TASK.header, {}))
    with pytest.raises(ExchangeError, match="samples is wrong"):
        read_update(Frame(UPDATE.header | {"samples": []}, {}))


def test_common_tensors_that_are_none_at_all_arrive():
    frames = received(sent(Frame({}, {}, {}), Frame({"n": 1}, {}, {})))
    assert [frame.common for frame in frames] == [{}, {}]
