"""Packing tensors into few bits, against hand-made bytes and against what rounding must guarantee."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from heroes.errors import ExchangeError, HeroesError
from heroes.slices import exchange
from heroes.slices.exchange import (
    LEVELS,
    UP_BITS,
    Packed,
    decode,
    encode,
    pack_tensors,
    tensors_bytes,
    unpack_tensors,
)
from heroes.slices.uploads import pack_update, pack_with_feedback, unpack_update

FEW = sorted(LEVELS)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=11)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)  # denormals and 3.4e38 included
ARRAYS = hnp.arrays(np.float32, SHAPES, elements=FLOATS)
GENERATORS = st.one_of(st.none(), st.integers(0, 2**32).map(np.random.default_rng))


def table(values, bits):
    """The rows as the module promises them, written down a second time."""
    if values.size == 0:
        return values.reshape(0, 0)
    rows = values.reshape(1, -1) if values.ndim < 2 else values.reshape(values.shape[0], -1)
    return rows if rows.shape[1] >= (8 if bits >= 8 else 24) else rows.reshape(1, -1)


def rounded(values, bits, rng=None):
    return decode(encode(torch.from_numpy(values), bits, rng)).numpy()


# --- hand-made cases


def test_four_bits_share_a_byte_the_first_in_the_low_half():
    packed = encode(torch.tensor([7.0, -7.0, 1.0, -1.0, 3.0]), 4)
    assert packed.payload.tolist() == [0x97, 0xF1, 0x03]
    assert packed.scales.tolist() == [7.0]
    assert (packed.shape, packed.bits, packed.nbytes) == ((5,), 4, 7)
    assert decode(packed).tolist() == [7.0, -7.0, 1.0, -1.0, 3.0]


def test_four_values_of_six_bits_fill_three_bytes_and_a_rest_takes_as_few_as_it_can():
    packed = encode(torch.tensor([31.0, -31.0, 1.0, -1.0, 3.0]), 6)
    assert int.from_bytes(packed.payload[:3].tobytes(), "little") == 0b111111_000001_100001_011111
    assert packed.payload[3:].tolist() == [3]
    assert decode(packed).tolist() == [31.0, -31.0, 1.0, -1.0, 3.0]


def test_two_bits_are_minus_one_zero_and_one_four_to_a_byte():
    packed = encode(torch.tensor([1.0, -1.0, 0.2, -0.6, 1.0]), 2)
    assert packed.payload.tolist() == [0b11_00_11_01, 0b01]
    assert decode(packed).tolist() == [1.0, -1.0, 0.0, -1.0, 1.0]
    many = decode(
        encode(torch.randn(500, generator=torch.Generator().manual_seed(0)), 2, np.random.default_rng(0))
    )
    assert len(many.unique()) == 3


def test_eight_and_sixteen_bits_are_little_endian_integers():
    values = torch.tensor([127.0, -1.0, 0.0])
    assert encode(values, 8).payload.tolist() == [127, 255, 0]
    assert encode(values, 16).payload.tolist() == [0xFF, 0x7F, 0xFE, 0xFE, 0, 0]  # 32767, -258 and 0
    assert encode(torch.tensor(1.0), 32).payload.tolist() == [0, 0, 0x80, 0x3F]


def test_every_row_has_its_own_scale_and_short_rows_share_one():
    rows = torch.stack([torch.full((2, 12), 1e-3), torch.full((2, 12), -5.0)])
    assert encode(rows, 4).scales.tolist() == encode(rows, 8).scales.tolist() == pytest.approx([1e-3, 5.0])
    assert encode(rows[:, :, :11], 6).scales.tolist() == [5.0]
    assert encode(rows[:, :, :4], 8).scales.tolist() == pytest.approx([1e-3, 5.0])
    assert encode(rows[:, :, :3], 8).scales.tolist() == [5.0]
    assert encode(torch.arange(9.0), 4).scales.tolist() == [8.0]
    assert encode(torch.tensor(-2.0), 4).scales.tolist() == [2.0]
    assert encode(torch.zeros(0, 9), 4).nbytes == encode(torch.zeros(9, 0), 4).nbytes == 0


def test_sizes_by_hand():
    shapes = [(10, 16), (3, 5), (7,), ()]  # 10 rows, or one in few bits, then one each: 183 values
    assert tensors_bytes(shapes, 32) == 4 * 183
    assert tensors_bytes(shapes, 8) == 183 + 4 * 13
    assert tensors_bytes(shapes, 6) == 120 + 12 + 6 + 1 + 4 * 4
    assert tensors_bytes(shapes, 4) == 80 + 8 + 4 + 1 + 4 * 4
    assert tensors_bytes(shapes, 2) == 40 + 4 + 2 + 1 + 4 * 4


def test_any_float_type_layout_and_gradient_is_taken():
    values = torch.arange(80.0).reshape(8, 10)
    assert torch.equal(decode(encode(values.t(), 32)), values.t())
    assert torch.equal(decode(encode(values.double().requires_grad_(), 32)), values)
    assert decode(encode(values.bfloat16(), 16)).dtype == torch.float32
    with pytest.raises(ExchangeError, match="int64"):
        encode(torch.arange(3), 8)


# --- what holds for all values


@given(ARRAYS)
def test_32_bits_change_nothing(values):
    assert rounded(values, 32).tobytes() == values.tobytes()


@given(ARRAYS, st.sampled_from(FEW), GENERATORS)
def test_the_error_is_at_most_one_step_and_half_of_one_to_nearest(values, bits, rng):
    after = rounded(values, bits, rng)
    assert (after.dtype, after.shape) == (np.float32, values.shape)
    assert np.isfinite(after).all()
    scales = np.abs(table(values, bits)).max(axis=1, initial=0.0)[:, None].astype(np.float64)
    precision = 2.0**-24 * scales + 1e-45  # of float32, which the result is in
    allowed = scales / LEVELS[bits] * (0.5 if rng is None else 1.0) + precision
    error = np.abs(table(after, bits).astype(np.float64) - table(values, bits).astype(np.float64))
    assert (error <= allowed).all()


@given(ARRAYS, st.sampled_from(FEW), GENERATORS)
def test_zeros_and_the_largest_of_a_row_come_back_exactly_and_signs_never_turn(values, bits, rng):
    before, after = table(values, bits), table(rounded(values, bits, rng), bits)
    assert (after[before == 0] == 0).all()
    largest = np.abs(before) == np.abs(before).max(axis=1, initial=0.0)[:, None]
    assert (after[largest] == before[largest]).all()
    assert ((np.sign(after) == np.sign(before)) | (after == 0)).all()


@given(FLOATS, st.integers(1, 5), st.integers(1, 20), st.sampled_from(UP_BITS), GENERATORS)
def test_all_equal_rows_come_back_exactly(value, rows, length, bits, rng):
    values = np.full((rows, length), value, np.float32)
    assert np.array_equal(rounded(values, bits, rng), values)


@pytest.mark.parametrize("bits", FEW)
@pytest.mark.parametrize("size", [3.4e38, 1e30, 1.0, 1e-30, 1e-38, 1e-44])
def test_huge_tiny_and_denormal_rows_stay_in_proportion(bits, size):
    values = np.linspace(-size, size, 41, dtype=np.float32)
    for rng in (None, np.random.default_rng(0)):
        after = rounded(np.stack([values, values * np.float32(0)]), bits, rng)
        step = size / LEVELS[bits]
        assert np.abs(after[0].astype(np.float64) - values).max() <= step + 1e-45 + 1e-6 * size
        assert not after[1].any()


@given(ARRAYS, st.sampled_from(FEW))
def test_rounding_to_nearest_what_was_rounded_changes_nothing(values, bits):
    once = rounded(values, bits)
    twice = encode(torch.from_numpy(once), bits)
    scales = np.abs(table(values, bits)).max(axis=1, initial=0.0)
    if (scales > 1e-30).all():  # among denormals float32 itself has coarser steps
        assert twice.payload.tolist() == encode(torch.from_numpy(values), bits).payload.tolist()
        # so what was rounded may be packed for the wire again
        assert decode(twice).numpy().tobytes() == once.tobytes()
    assert twice.scales.tolist() == scales.tolist()


@given(ARRAYS, st.sampled_from(UP_BITS))
def test_a_packed_tensor_in_one_piece_is_the_same_again(values, bits):
    packed = encode(torch.from_numpy(values), bits)
    again = Packed.parted(packed.joined(), packed.shape, bits)
    assert len(packed.joined()) == packed.nbytes
    assert (again.payload.tolist(), again.scales.tolist()) == (
        packed.payload.tolist(),
        packed.scales.tolist(),
    )


@pytest.mark.parametrize(
    ("data", "shape", "bits"),
    [(b"", (2, 9), 8), (bytes(30), (2, 9), 8), (bytes(8), (-2,), 8), (b"", (1,), 5)],
)
def test_a_piece_that_is_no_packed_tensor_is_refused(data, shape, bits):
    with pytest.raises(ExchangeError):
        Packed.parted(data, shape, bits)


@given(st.data(), st.sampled_from(FEW), st.integers(0, 70))
def test_packing_integers_and_unpacking_them_is_the_identity(data, bits, count):
    codes = data.draw(hnp.arrays(np.int16, count, elements=st.integers(-LEVELS[bits], LEVELS[bits])))
    payload = exchange._pack(codes, bits)
    assert (payload.dtype, len(payload)) == (np.uint8, math.ceil(count * bits / 8))
    assert exchange._unpack(payload, count, bits).tolist() == codes.tolist()
    scales = np.full(min(count, 1), LEVELS[bits], np.float32)
    assert decode(Packed(payload, scales, (count,), bits)).tolist() == codes.tolist()


@pytest.mark.parametrize("bits", FEW)
def test_rounding_at_random_is_right_in_the_mean_and_to_nearest_is_not(bits):
    draws = 40_000
    row = torch.tensor([1.0, -0.7, 0.31, -0.05, 0.013, 1e-3, -1e-5, 0.0])
    many = decode(encode(row.repeat(draws, 1), bits, np.random.default_rng(5))).double()
    step = 1.0 / LEVELS[bits]
    part = (row.double() / step) % 1.0
    deviation = step * (part * (1 - part) / draws).sqrt()
    assert ((many.mean(dim=0) - row).abs() <= 4.5 * deviation + 1e-7).all()
    assert many.std(dim=0)[2] > 0
    assert (decode(encode(row, bits)) - row).abs().max() > 1e-6


def test_scaled_integers_beat_half_floats_at_every_magnitude():
    bell = torch.randn(50, 1000, generator=torch.Generator().manual_seed(0))
    for size in (1e30, 1.0, 1e-30):
        values = bell * size
        error, half, brain = (
            float((after.double() - values.double()).norm())
            for after in (decode(encode(values, 16)), values.half().float(), values.bfloat16().float())
        )
        assert error < half / 6
        assert error < brain / 50


# --- sizes, seeds and refusals


@given(st.lists(SHAPES, max_size=5), st.sampled_from(UP_BITS))
def test_the_size_planned_from_shapes_is_the_size_packed(shapes, bits):
    packed = pack_tensors({str(n): torch.ones(shape) for n, shape in enumerate(shapes)}, bits, seed=1)
    assert tensors_bytes(shapes, bits) == sum(piece.nbytes for piece in packed.values())
    assert tensors_bytes(shapes, bits) == sum(
        len(p.payload.tobytes()) + len(p.scales.tobytes()) for p in packed.values()
    )
    assert {name: tuple(t.shape) for name, t in unpack_tensors(packed).items()} == {
        str(n): s for n, s in enumerate(shapes)
    }


def test_the_same_seed_rounds_the_same_whatever_the_order_and_another_differently():
    tensors = {"a": torch.linspace(-1, 1, 200), "b": torch.linspace(-1, 1, 200)}

    def payloads(order, seed):
        packed = pack_tensors({name: tensors[name] for name in order}, 4, seed)
        return {name: piece.payload.tobytes() for name, piece in packed.items()}

    assert payloads("ab", 3) == payloads("ba", 3)
    assert payloads("ab", 3) != payloads("ab", 4)
    assert payloads("ab", 3)["a"] != payloads("ab", 3)["b"]
    assert payloads("ab", None)["a"] == payloads("ab", None)["b"]


@given(ARRAYS.filter(lambda a: a.size > 0), st.data(), st.sampled_from(UP_BITS), GENERATORS)
def test_what_is_not_finite_is_refused(values, data, bits, rng):
    values = values.copy()
    values.reshape(-1)[data.draw(st.integers(0, values.size - 1))] = data.draw(
        st.sampled_from([math.nan, math.inf, -math.inf])
    )
    with pytest.raises(ExchangeError, match="not finite"):
        encode(torch.from_numpy(values), bits, rng)


def test_refusals_name_the_tensor_and_doubles_too_large_for_32_bits_count():
    with pytest.raises(ExchangeError, match=r"conv\.weight: a value is not finite"):
        pack_tensors({"bias": torch.zeros(2), "conv.weight": torch.tensor([math.nan])}, 8)
    with pytest.raises(HeroesError, match="not finite in 32 bits"):
        encode(torch.tensor([1e300], dtype=torch.float64), 4)


@pytest.mark.parametrize("bits", [0, 1, 3, 7, 64, -8])
def test_unknown_bits_are_refused(bits):
    for attempt in (
        lambda: encode(torch.ones(3), bits),
        lambda: tensors_bytes([(3,)], bits),
        lambda: Packed(np.zeros(3, np.uint8), np.ones(1, np.float32), (3,), bits),
    ):
        with pytest.raises(ExchangeError, match="32, 16, 8, 6, 4, 2"):
            attempt()


@pytest.mark.parametrize(
    ("payload", "scales", "shape", "bits", "says"),
    [
        (np.zeros(3, np.uint8), np.ones(1, np.float32), (5, 1), 8, "payload"),
        (np.zeros(2, np.uint8), np.ones(1, np.float32), (5,), 4, "payload"),
        (np.zeros(4, np.uint8), np.ones(1, np.float32), (5,), 4, "payload"),
        (np.zeros((1, 3), np.uint8), np.ones(1, np.float32), (5,), 4, "payload"),
        (np.zeros(3, np.int8), np.ones(1, np.float32), (5,), 4, "payload"),
        (np.zeros(3, np.uint8), np.ones(2, np.float32), (5,), 4, "scales"),
        (np.zeros(3, np.uint8), np.ones(1, np.float64), (5,), 4, "scales"),
        (np.zeros(4, np.uint8), np.ones(1, np.float32), (), 32, "scales"),
        (np.zeros(3, np.uint8), np.full(1, np.nan, np.float32), (5,), 4, "scale that is"),
        (np.zeros(3, np.uint8), np.full(1, np.inf, np.float32), (5,), 4, "scale that is"),
        (np.zeros(3, np.uint8), np.full(1, -1, np.float32), (5,), 4, "scale that is"),
        (np.zeros(3, np.uint8), np.ones(1, np.float32), (-5, -1), 4, "shape"),
        (np.zeros(1, np.uint8), np.ones(1, np.float32), (10**15,), 8, "payload"),
    ],
)
def test_a_malformed_packed_tensor_is_refused(payload, scales, shape, bits, says):
    with pytest.raises(ExchangeError, match=says):
        Packed(payload, scales, shape, bits)


@pytest.mark.parametrize(
    ("payload", "bits", "count"),
    [
        ([0x80], 8, 1),
        ([0, 0x80], 16, 1),
        ([0x08], 4, 1),
        ([0b10], 2, 1),
        ([0x10], 4, 1),
        ([0b01_00_00_00], 2, 3),
        ([0b0100_0000], 6, 1),
        ([0b0010_0000], 6, 1),
    ],
)
def test_codes_and_padding_that_are_never_sent_are_refused(payload, bits, count):
    packed = Packed(np.array(payload, np.uint8), np.ones(1, np.float32), (count,), bits)
    with pytest.raises(ExchangeError, match="never sent"):
        decode(packed)


def test_a_32_bit_payload_that_is_not_finite_is_refused():
    nan = np.array([math.nan], "<f4").view(np.uint8)
    with pytest.raises(ExchangeError, match="not finite"):
        decode(Packed(nan, np.zeros(0, np.float32), (1,), 32))


def test_read_only_bytes_from_a_wire_decode_to_a_tensor_of_their_own():
    for bits in UP_BITS:
        sent = encode(torch.linspace(-1, 1, 9), bits)
        payload, scales = (
            np.frombuffer(sent.payload.tobytes(), np.uint8),
            np.frombuffer(sent.scales.tobytes(), np.float32),
        )
        after = decode(Packed(payload, scales, sent.shape, bits))
        assert torch.equal(after, decode(sent))
        after += 1
        assert payload.tobytes() == sent.payload.tobytes()


# --- uploads


def test_an_upload_is_the_difference_from_what_was_received():
    whole = {"w": torch.tensor([100.3, -50.2, 7.0])}
    received = unpack_tensors(pack_tensors(whole, 8))
    trained = {"w": received["w"] + torch.tensor([0.7, -0.3, 0.0])}
    packed = pack_update(trained, received, 4, seed=1)
    assert packed["w"].scales.tolist() == pytest.approx([0.7], rel=1e-4)
    torch.testing.assert_close(unpack_update(packed, received)["w"], trained["w"], atol=0.1, rtol=0)


def test_an_upload_of_32_bits_is_bit_for_bit_what_was_trained():
    received = {"w": torch.full((3,), 1e8)}
    trained = {"w": torch.tensor([0.1, 1.7, -3e-9])}
    packed = pack_update(trained, received, 32, seed=1)
    assert torch.equal(unpack_update(packed, received)["w"], trained["w"])
    packed, residuals = pack_with_feedback(trained, received, 32, {"w": torch.zeros(3)})
    assert torch.equal(unpack_update(packed, received)["w"], trained["w"])
    assert residuals["w"].tolist() == [0.0, 0.0, 0.0]


def test_an_upload_of_other_names_or_shapes_is_refused():
    received = {"w": torch.zeros(3)}
    with pytest.raises(ExchangeError, match="names differ: v"):
        unpack_update(pack_tensors({"w": torch.zeros(3), "v": torch.zeros(1)}, 8), received)
    with pytest.raises(ExchangeError, match=r"w has shape \(1,\) instead of \(3,\)"):
        unpack_update(pack_tensors({"w": torch.zeros(1)}, 8), received)


# --- error feedback


def test_feedback_by_hand():
    packed, left = pack_with_feedback(
        {"w": torch.tensor([8.0, 2.25])}, {"w": torch.ones(2)}, 4, {"w": torch.tensor([0.0, 0.5])}
    )
    assert decode(packed["w"]).tolist() == [7.0, 2.0]
    assert left["w"].tolist() == [0.0, -0.25]


@given(hnp.arrays(np.float32, (3, 9), elements=st.floats(-10, 10, width=32)), st.sampled_from(FEW))
def test_what_is_sent_and_what_is_left_make_up_what_was_wanted(values, bits):
    trained, residual = torch.from_numpy(values), torch.linspace(-1, 1, 27).reshape(3, 9)
    packed, left = pack_with_feedback({"w": trained}, {"w": torch.zeros(3, 9)}, bits, {"w": residual})
    torch.testing.assert_close(decode(packed["w"]) + left["w"], trained + residual)
    assert left["w"].norm() <= (trained + residual).norm()


@pytest.mark.parametrize("bits", FEW)
def test_with_feedback_the_sum_of_what_is_sent_follows_the_sum_of_what_was_wanted(bits):
    received = {"w": torch.zeros(64)}
    trained = {"w": torch.randn(64, generator=torch.Generator().manual_seed(1))}
    residuals, plain = {"w": torch.zeros(64)}, unpack_tensors(pack_tensors(trained, bits))["w"]
    total = torch.zeros(64, dtype=torch.float64)
    for _ in range(100):
        packed, residuals = pack_with_feedback(trained, received, bits, residuals)
        total += unpack_update(packed, received)["w"]
    error = (total / 100 - trained["w"]).norm()
    assert error < 0.1 * (plain - trained["w"]).norm()
    torch.testing.assert_close(total + residuals["w"], 100 * trained["w"].double(), atol=1e-3, rtol=0)


def test_at_two_bits_what_is_left_over_stays_bounded():
    generator = torch.Generator().manual_seed(2)
    residuals = {"w": torch.zeros(1000)}
    for _ in range(60):
        difference = torch.randn(1000, generator=generator)
        _, residuals = pack_with_feedback({"w": difference}, {"w": torch.zeros(1000)}, 2, residuals)
    assert float(residuals["w"].norm() / difference.norm()) < 4
