"""What is received is what was sent, to the bit."""

from __future__ import annotations

import math
import socket
import struct
from contextlib import ExitStack
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import ExchangeError
from heroes.messages import Assignment, Selection, Task, Update
from heroes.transport.wire import (
    Channel,
    Frame,
    Parcels,
    Shelf,
    read_task,
    read_update,
    task_frame,
    update_frame,
)

ASSIGNMENT = Assignment(
    7, 3, "board", Selection(2, (0, 2), (0, 2, 6, 8)), 5, 0.1, 1.0, 0.5, 2.0, 10, 20, True
)


def through(frame: Frame) -> Frame:
    """Send over a real socket, from a thread: large frames do not fit into its buffer."""
    left, right = socket.socketpair()
    with left, right:
        sender = Thread(target=Channel(left).send, args=(frame,))
        sender.start()
        received = Channel(right).receive()
        sender.join()
    return received


def same_bits(one, two) -> bool:
    return (
        one.dtype == two.dtype and one.shape == two.shape and one.numpy().tobytes() == two.numpy().tobytes()
    )


@pytest.mark.parametrize("residuals", [None, {}, {"w": torch.ones(2)}])
def test_a_task_arrives_as_it_was(residuals):
    task = Task(ASSIGNMENT, {"b": torch.randn(3, 2), "a": torch.tensor(4.0)}, 2**62 + 1, residuals)
    arrived = read_task(through(task_frame(task)))
    assert (arrived.assignment, arrived.seed) == (ASSIGNMENT, 2**62 + 1)
    assert list(arrived.tensors) == ["b", "a"]
    assert all(same_bits(arrived.tensors[name], value) for name, value in task.tensors.items())
    assert (arrived.residuals is None) == (residuals is None)
    assert list(arrived.residuals or {}) == list(residuals or {})


@given(st.dictionaries(st.text(), st.floats(), max_size=4), st.floats(), st.booleans())
def test_an_update_arrives_as_it_was_with_every_number_finite_or_not(measured, loss, with_extras):
    extras = {"gradient": torch.tensor([math.nan, 1.0, -math.inf]), "labels": torch.tensor([4, 9])}
    extras = extras if with_extras else {}
    update = Update(3, 7, {"w": torch.tensor([math.nan, -0.0])}, 12, loss, measured, extras)
    arrived = read_update(through(update_frame(update)))
    assert (arrived.client, arrived.round, arrived.samples) == (3, 7, 12)
    assert repr((arrived.loss, arrived.measured)) == repr((loss, measured))
    assert same_bits(arrived.tensors["w"], update.tensors["w"])
    assert arrived.extras.keys() == extras.keys()
    assert all(same_bits(arrived.extras[name], tensor) for name, tensor in extras.items())


KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 0, 2), (1000, 333)])
def test_any_tensor_arrives_where_torch_would_have_put_it(dtype, shape):
    tensor = (torch.rand(shape) * 4).to(dtype)
    arrived = through(Frame({}, {"x": torch.zeros(1), "y": tensor, "z": torch.ones(3)})).tensors
    assert torch.equal(arrived["y"], tensor)
    assert arrived["y"].dtype == dtype
    assert all(value.data_ptr() % 64 == 0 for value in arrived.values() if value.numel())


def test_tensors_that_lie_otherwise_in_memory_and_very_many_of_them():
    turned = torch.arange(12.0).reshape(3, 4).T.requires_grad_()
    last = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    many = {str(n): torch.tensor([n]) for n in range(700)}
    arrived = through(Frame({"text": "é"}, {"turned": turned, "last": last, **many}))
    assert arrived.header == {"text": "é"}
    assert torch.equal(arrived.tensors["turned"], turned.detach())
    assert torch.equal(arrived.tensors["last"], last)
    assert [int(arrived.tensors[str(n)]) for n in range(700)] == list(range(700))


@pytest.mark.parametrize("sent", [b"", b"\0\0", struct.pack(">Q", 50) + b'{"tensors"'])
def test_an_end_in_the_midst_is_an_end(sent):
    left, right = socket.socketpair()
    with left, right:
        left.sendall(sent)
        left.close()
        with pytest.raises(EOFError):
            Channel(right).receive()


def test_what_messages_have_in_common_travels_once_and_again_after_forgetting():
    here, there = socket.socketpair()
    sender, receiver = Channel(here), Channel(there)
    slices = [{"w": torch.full((5,), float(n))} for n in range(11)]
    sizes = []
    real = here.sendmsg
    sender.link = SimpleNamespace(
        sendmsg=lambda buffers: sizes.append(sum(map(len, buffers))) or real(buffers)
    )
    for n in (0, 0, 1, 0, 2, 3, 4, 5, 6, 7, 7, 8, 0, 0, 9, 10):
        sender.send(Frame({"n": n}, {"own": torch.tensor([n])}, slices[n]))
        arrived = receiver.receive()
        assert arrived.header["n"] == int(arrived.tensors["own"])
        assert torch.equal(arrived.common["w"], slices[n]["w"])
    assert sizes[1] < sizes[0]
    sender.forget()
    sender.send(Frame({"n": 10}, {"own": torch.tensor([10])}, slices[10]))
    assert sizes[-1] == sizes[-2]
    assert torch.equal(receiver.receive().common["w"], slices[10]["w"])
    sender.send(Frame({}, {}))
    assert receiver.receive().common is None
    here.close(), there.close()


def test_a_parcel_is_the_same_bytes_as_go_over_a_socket_and_knows_what_the_other_end_has():
    sender, receiver = Parcels(), Parcels()
    frame = Frame({"n": 1}, {"own": torch.arange(3)}, {"w": torch.randn(70, 2)})
    first, again = sender.wrap(frame), sender.wrap(frame)
    assert first == b"".join(Channel(SimpleNamespace()).pack(frame))
    assert len(again) < len(first) / 2
    for parcel in (first, again):
        arrived = receiver.unwrap(np.frombuffer(parcel, np.uint8))
        assert (arrived.header, arrived.tensors["own"].tolist()) == ({"n": 1}, [0, 1, 2])
        assert same_bits(arrived.common["w"], frame.common["w"])
        assert arrived.common["w"].data_ptr() % 64 == 0


@pytest.mark.parametrize("length", [0, 5, 60, -1])
def test_a_parcel_that_is_cut_off_is_an_end(length):
    parcel = np.frombuffer(Parcels().wrap(Frame({}, {"w": torch.ones(40)})), np.uint8)
    with pytest.raises(EOFError):
        Parcels().unwrap(parcel[:length])


# a shelf


@pytest.fixture
def shelved():
    """Makes the end that lays bodies down, the one that takes them, and the shelf."""
    with ExitStack() as stack:

        def make(room=2**20):
            shelf = Shelf(2, room)
            ends = [stack.enter_context(end) for end in socket.socketpair()]
            return *(Channel(end, shelf=shelf) for end in ends), shelf

        yield make


def many(count: int, value: float = 1.0) -> Frame:
    return Frame({"n": value}, {"a": torch.full((count,), value), "b": torch.arange(3)})


def test_bodies_that_lie_on_a_shelf_arrive_as_they_were_and_hardly_use_the_socket(shelved):
    one, other, _ = shelved()
    for n in range(5):  # more than there are places: each is free again when it was taken
        one.send(many(100_000, n), laying=True)
        assert len(other.link.recv(2**20, socket.MSG_PEEK)) < 1000
        found = other.receive()
        assert (found.header, found.tensors["b"].tolist()) == ({"n": n}, [0, 1, 2])
        assert torch.equal(found.tensors["a"], torch.full((100_000,), float(n)))


@pytest.mark.parametrize(("count", "room"), [(10, 2**20), (20_000, 1000)])
def test_small_bodies_and_those_too_large_for_a_shelf_go_through_the_socket(shelved, count, room):
    one, other, _ = shelved(room)
    one.send(many(count), laying=True)
    assert len(other.link.recv(2**20, socket.MSG_PEEK)) > 4 * count
    assert torch.equal(other.receive().tensors["a"], torch.ones(count))


def test_what_nobody_took_is_not_written_over(shelved):
    one, other, shelf = shelved()
    for n in range(3):  # the third has no place, and goes through the socket
        one.send(many(20_000, n), laying=True)
    assert [other.receive().header["n"] for _ in range(3)] == [0, 1, 2]
    assert shelf.lay([memoryview(b"abc")], 3) == 1


@pytest.mark.parametrize("place", [1, 2, 3, 255])
def test_a_frame_that_names_a_place_with_nothing_on_it_is_refused(shelved, place):
    one, other, _ = shelved()
    header, *_ = one.pack(many(20_000))
    one.link.sendall(bytes([place]) + header[1:])
    with pytest.raises(ExchangeError, match=r"not at place|claims"):
        other.receive()


def test_a_place_means_nothing_where_no_memory_is_shared(shelved):
    one, _, _ = shelved()
    header, *_ = one.pack(many(10))
    with pytest.raises(ExchangeError, match="claims"):
        Parcels().unwrap(np.frombuffer(bytes([1]) + header[1:], np.uint8))
