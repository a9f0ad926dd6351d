"""The largest values of a change: which travel, where they lie, how many bytes that is, what is left."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import ExchangeError
from heroes.slices.exchange import Packed, encode, tensors_bytes
from heroes.slices.uploads import (
    Largest,
    decode_any,
    encode_largest,
    kept,
    pack_update,
    pack_with_feedback,
    parted,
    unpack_update,
    upload_bytes,
)

SHAPES = st.sampled_from([(), (1,), (7,), (16,), (100,), (3, 5), (4, 40), (2, 3, 3, 3), (0,), (1000,)])
BITS = st.sampled_from([32, 16, 8, 4, 2])
SHARES = st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.9, 1.0])


def drawn(shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_the_largest_travel_and_of_equals_the_first():
    values = torch.tensor([1.0, -5, 1, 0, 3, 1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    piece = encode_largest(values, 32, share=0.2)
    assert isinstance(piece, Largest)
    assert decode_any(piece).tolist() == [1.0, -5, 1, 0, 3] + [0.0] * 15
    # four places of 5 bits are 20 bits, as many as one for each value: 3 bytes; and four values of 4
    assert (piece.places.nbytes, piece.nbytes) == (3, 19)


@pytest.mark.parametrize(
    ("count", "bits", "share", "sent", "nbytes"),
    [
        (1000, 32, 0.01, 10, 40 + 13),  # ten places of 10 bits
        (1000, 32, 0.5, 500, 2000 + 125),  # one bit for every value is shorter
        (1000, 32, 0.98, 1000, 4000),  # 3920 + 125 would be more than all of it
        (1000, 8, 0.1, 100, 100 + 4 + 125),
        (1000, 2, 0.5, 1000, 250 + 4),  # 125 + 4 + 125 is no less
        (4, 32, 0.01, 1, 4 + 1),
        (1, 32, 0.5, 1, 4),
    ],
)
def test_bytes_by_hand(count, bits, share, sent, nbytes):
    assert kept((count,), bits, share) == sent
    assert upload_bytes([(count,)], bits, share) == nbytes
    assert encode_largest(drawn((count,)), bits, share).nbytes == nbytes


@given(SHAPES, BITS, SHARES, st.integers(0, 5))
def test_what_travels_comes_back_and_weighs_what_was_planned(shape, bits, share, seed):
    tensor = drawn(shape, seed)
    piece = encode_largest(tensor, bits, share)
    assert piece.nbytes == len(piece.joined()) == upload_bytes([shape], bits, share)
    again = parted(piece.joined(), shape, bits, share)
    found = decode_any(again)
    assert torch.equal(found, decode_any(piece))
    assert found.shape == tensor.shape
    sent = kept(shape, bits, share)
    assert sent in (math.prod(shape), math.ceil(share * math.prod(shape)))
    assert int((found != 0).sum()) <= sent
    if bits == 32 and sent:
        largest = tensor.abs().flatten().sort(descending=True).values[:sent]
        assert torch.equal(found.abs().flatten().sort(descending=True).values[:sent], largest)


@given(SHAPES, BITS)
def test_all_of_a_tensor_is_as_it_was_without_shares(shape, bits):
    piece, before = encode_largest(drawn(shape), bits, 1.0), encode(drawn(shape), bits)
    assert isinstance(piece, Packed)
    assert piece.joined() == before.joined()
    assert upload_bytes([shape], bits) == tensors_bytes([shape], bits)


@given(SHAPES, BITS, SHARES, st.binary(max_size=40), st.integers(0, 200))
def test_any_bytes_are_a_tensor_or_an_exchange_error(shape, bits, share, noise, at):
    good = encode_largest(drawn(shape), bits, share).joined()
    data = good[:at] + noise + good[at + len(noise) :]
    for given_bytes in (data, data[: len(good)], noise):
        try:
            found = decode_any(parted(given_bytes, shape, bits, share))
        except ExchangeError:
            continue
        assert found.shape == shape
        assert bool(torch.isfinite(found).all())


@pytest.mark.parametrize("places", [b"\x00\x00\x00\x00", b"\x21\x00\x00\x00", b"\xff\xff\xff\xff"])
def test_places_that_cannot_be_are_refused(places):
    good = encode_largest(drawn((1000,)), 32, 0.003)  # three places of 10 bits
    assert isinstance(good, Largest)
    assert good.places.nbytes == 4
    with pytest.raises(ExchangeError, match=r"does not say where its 3 values lie among 1000|after its last"):
        decode_any(parted(places + good.values.joined(), (1000,), 32, 0.003))


def test_an_upload_is_what_was_received_and_the_largest_changes():
    received = {"w": torch.arange(100.0), "b": torch.tensor(2.0)}
    change = torch.zeros(100)
    change[[3, 50]] = torch.tensor([5.0, -7.0])
    change[7] = 1.0
    trained = {"w": received["w"] + change, "b": torch.tensor(2.5)}
    packed = pack_update(trained, received, 32, 1, share=0.02)
    seen = unpack_update(packed, received)
    assert (seen["w"] - received["w"]).nonzero().flatten().tolist() == [3, 50]
    assert float(seen["b"]) == 2.5  # too small to be cut


def test_what_did_not_travel_is_sent_later():
    received = {"w": torch.zeros(100)}
    trained = {"w": torch.zeros(100)}
    trained["w"][[1, 2, 3]] = torch.tensor([3.0, 2.0, 1.0])
    left = {"w": torch.zeros(100)}
    sent = []
    for _ in range(3):
        packed, left = pack_with_feedback(trained, received, 32, left, share=0.01)
        seen = unpack_update(packed, received)["w"]
        sent.append((int(seen.nonzero()), float(seen.sum())))
        trained = {"w": torch.zeros(100)}  # nothing new
    assert sent == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert not left["w"].any()


@given(BITS, SHARES, st.integers(0, 5))
def test_nothing_is_lost_with_feedback(bits, share, seed):
    received, trained = {"w": drawn((8, 30), seed)}, {"w": drawn((8, 30), seed + 1)}
    before = {"w": 0.1 * drawn((8, 30), seed + 2)}
    packed, left = pack_with_feedback(trained, received, bits, before, share)
    seen = unpack_update(packed, received)["w"]
    torch.testing.assert_close(seen + left["w"], trained["w"] + before["w"], rtol=1e-4, atol=1e-5)


def test_a_change_that_is_not_finite_is_refused_with_its_name():
    with pytest.raises(ExchangeError, match=r"^w: a value is not finite"):
        pack_update({"w": torch.full((100,), math.nan)}, {"w": torch.zeros(100)}, 32, 1, share=0.1)
