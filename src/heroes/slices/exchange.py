"""How tensors travel with fewer bits: downloads are rounded, and `uploads` are rounded differences.

Stands between the cut and the wire. A tensor is seen as rows (first axis by the rest), every row has one
float32 scale, its largest magnitude, and every value is an integer from -levels to levels times scale /
levels; a tensor whose rows have fewer than 8 values, or than 24 below 8 bits, is seen as one row:

    bits    32         16      8     6    4   2
    levels  unchanged  32767   127   31   7   1 (so -1, 0, 1: symmetric, zero is exact; one code is unused)

Downloads (of the values; not in 2 bits) round to nearest. Uploads (of the differences) round up or down at
random so that the mean is right, from the client's seed. Names, shapes and bits are known to both sides from
the plan, so only integers and scales count as bytes. 16 bits are scaled integers and not floats: on
bell-shaped rows they are six or more times as accurate as float16 and fifty as bfloat16 (only on long rows
with wild outliers float16 is better, twice), and they fit rows of 1e30 and of 1e-30, where float16 gives
infinity and zero.

>>> import torch
>>> packed = encode(torch.tensor([[7.0, -3.0, 0.4], [0.0, 0.0, 0.0]]), bits=4)
>>> packed.nbytes, decode(packed).tolist()  # so few values in a row: the tensor is one row
(7, [[7.0, -3.0, 0.0], [0.0, 0.0, 0.0]])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heroes import seeds
from heroes.errors import ExchangeError
from heroes.messages import Tensors

LEVELS = {16: 32767, 8: 127, 6: 31, 4: 7, 2: 1}
UP_BITS = (32, 16, 8, 6, 4, 2)
SHORTEST_ROWS = {16: 8, 8: 8, 6: 24, 4: 24, 2: 24}  # values: shorter ones' scales weigh too much

Bytes = npt.NDArray[np.uint8]
Singles = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int16]
Rounding = np.random.Generator | None  # None: to nearest


@dataclass(frozen=True, eq=False)
class Packed:
    """A tensor as it travels: integers (little-endian, low bits first) or float32, and a scale per row."""

    payload: Bytes
    scales: Singles  # none at 32 bits
    shape: tuple[int, ...]
    bits: int

    def __post_init__(self) -> None:
        _check_bits(self.bits)
        if any(size < 0 for size in self.shape):
            raise ExchangeError(f"a packed tensor cannot have shape {self.shape}")
        rows = 0 if self.bits == 32 else _table(self.shape, self.bits)[0]
        _check_array("payload", self.payload, np.uint8, -(-math.prod(self.shape) * self.bits // 8))
        _check_array("scales", self.scales, np.float32, rows)
        if not bool((np.isfinite(self.scales) & (self.scales >= 0)).all()):
            raise ExchangeError("a packed tensor has a scale that is negative or not finite")

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.payload.nbytes + self.scales.nbytes

    def joined(self) -> bytes:
        """All of it in one piece: the scales, then the integers."""
        return self.scales.astype("<f4").tobytes() + self.payload.tobytes()

    @classmethod
    def parted(cls, data: bytes, shape: tuple[int, ...], bits: int) -> Packed:
        """What `joined` made one piece of; ExchangeError where it cannot be that."""
        _check_bits(bits)
        scales = 0 if bits == 32 or any(size < 0 for size in shape) else 4 * _table(shape, bits)[0]
        if len(data) < scales:
            raise ExchangeError(f"a packed tensor of shape {shape} needs more than {len(data)} bytes")
        return cls(
            np.frombuffer(data[scales:], np.uint8),
            np.frombuffer(data[:scales], "<f4").astype(np.float32),
            shape,
            bits,
        )


def encode(tensor: Tensor, bits: int, rng: Rounding = None) -> Packed:
    """Pack a tensor: to nearest, or with a generator at random between neighbours, right on average."""
    _check_bits(bits)
    if not tensor.is_floating_point():
        raise ExchangeError(f"only floating-point tensors can be packed, not {tensor.dtype}")
    shape = tuple(tensor.shape)
    values: Singles = np.ascontiguousarray(tensor.detach().to("cpu", torch.float32).numpy())
    if not bool(np.isfinite(values).all()):
        raise ExchangeError("a value is not finite in 32 bits and cannot be packed")
    if bits == 32:
        return Packed(values.astype("<f4").reshape(-1).view(np.uint8), np.zeros(0, np.float32), shape, bits)
    table = values.reshape(_table(shape, bits))
    scales: Singles = np.abs(table).max(axis=1, initial=0.0)
    # in double, where no float32 over- or underflows
    divisors = np.where(scales > 0, scales, 1.0).astype(np.float64)
    steps = table / divisors[:, None]
    steps *= LEVELS[bits]
    if rng is None:
        np.rint(steps, out=steps)
    else:
        # 24 bits: the sum with a whole number is exact, so it stays
        steps += rng.random(steps.shape, dtype=np.float32)
        np.floor(steps, out=steps)
    return Packed(_pack(steps.reshape(-1).astype(np.int16), bits), scales, shape, bits)


def decode(packed: Packed) -> Tensor:
    """The tensor, in float32. A row's largest magnitude and its zeros come back exactly."""
    if packed.bits == 32:
        values = np.ascontiguousarray(packed.payload).view("<f4").astype(np.float32)
        if not bool(np.isfinite(values).all()):
            raise ExchangeError("a packed tensor has a value that is not finite")
        return torch.from_numpy(values.reshape(packed.shape))
    codes = _unpack(packed.payload, math.prod(packed.shape), packed.bits)
    table = codes.reshape(_table(packed.shape, packed.bits)).astype(np.float64)
    table /= LEVELS[packed.bits]
    table *= packed.scales[:, None]
    return torch.from_numpy(table.astype(np.float32).reshape(packed.shape))


def tensors_bytes(shapes: Iterable[tuple[int, ...]], bits: int) -> int:
    """Bytes on the wire of tensors of these shapes.

    >>> tensors_bytes([(3, 30), (5,)], bits=4)  # 45 + 3 bytes of integers, 3 + 1 scales
    64
    """
    _check_bits(bits)
    if bits == 32:
        return sum(4 * math.prod(shape) for shape in shapes)
    return sum(-(-math.prod(shape) * bits // 8) + 4 * _table(shape, bits)[0] for shape in shapes)


def halved(bits: int) -> int:
    """The most bits that are at most half of these.

    >>> halved(32), halved(8), halved(6)
    (16, 4, 2)
    """
    return max(fewer for fewer in UP_BITS if 2 * fewer <= bits)


def pack_tensors(tensors: Tensors, bits: int, seed: int | None = None) -> dict[str, Packed]:
    """Pack each tensor: to nearest, or at random from the seed, in a stream named after the tensor."""
    packed = {}
    for name, tensor in tensors.items():
        try:
            packed[name] = encode(
                tensor, bits, None if seed is None else seeds.stream(seed, "rounding", name)
            )
        except ExchangeError as error:
            raise ExchangeError(f"{name}: {error}") from error
    return packed


def unpack_tensors(packed: Mapping[str, Packed]) -> dict[str, Tensor]:
    """The tensors, in float32."""
    return {name: decode(piece) for name, piece in packed.items()}


def _table(shape: tuple[int, ...], bits: int) -> tuple[int, int]:
    """Rows and values per row; scalars, vectors and tensors of very short rows are one row."""
    count = math.prod(shape)
    if count == 0:
        return 0, 0
    length = count // shape[0] if len(shape) > 1 else count
    return (count // length, length) if length >= SHORTEST_ROWS[bits] else (1, count)


def _pack(codes: Codes, bits: int) -> Bytes:
    if bits >= 8:
        return codes.astype(f"<i{bits // 8}").view(np.uint8)
    together, size = _group(bits)
    lanes = np.zeros((-(-len(codes) // together), together), "<u4")
    lanes.reshape(-1)[: len(codes)] = codes & (2**bits - 1)
    words = lanes[:, 0].copy()
    for lane in range(1, together):
        words |= lanes[:, lane] << (bits * lane)
    payload = words.view(np.uint8).reshape(-1, 4)[:, :size].reshape(-1)
    return payload[: -(-len(codes) * bits // 8)]


def _unpack(payload: Bytes, count: int, bits: int) -> Codes:
    codes: Codes
    if bits >= 8:
        codes = np.ascontiguousarray(payload).view(f"<i{bits // 8}").astype(np.int16)
    else:
        together, size = _group(bits)
        whole = np.pad(payload, (0, -len(payload) % size)).reshape(-1, size)
        words = np.pad(whole, ((0, 0), (0, 4 - size))).view("<u4")
        lanes = (words >> np.arange(0, bits * together, bits, dtype=np.uint32)) & (2**bits - 1)
        # the top bit is the sign
        codes = (lanes.reshape(-1) ^ 2 ** (bits - 1)).astype(np.int16) - np.int16(2 ** (bits - 1))
    if bool(codes[count:].any()) or bool((codes < -LEVELS[bits]).any()):
        raise ExchangeError(f"a packed tensor of {bits} bits has a code that is never sent")
    return codes[:count]


def _group(bits: int) -> tuple[int, int]:
    """How many codes fill whole bytes together, and how many bytes those are: 4 of 6 bits fill 3."""
    together = 8 // math.gcd(8, bits)
    return together, together * bits // 8


def _check_bits(bits: int) -> None:
    if bits not in UP_BITS:
        raise ExchangeError(
            f"tensors cannot travel with {bits} bits. Choices: {', '.join(map(str, UP_BITS))}"
        )


def _check_array(what: str, array: npt.NDArray[np.generic], kind: type[np.generic], length: int) -> None:
    if array.dtype != kind or array.shape != (length,):
        wanted = f"{np.dtype(kind)} of shape {(length,)}"
        raise ExchangeError(
            f"the {what} of a packed tensor must be {wanted}, not {array.dtype} of shape {array.shape}"
        )
