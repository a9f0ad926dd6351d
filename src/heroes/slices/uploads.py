"""A client's upload: differences from what it received, rounded, and of each tensor only the largest.

With a share below 1, of every tensor of n values k = ceil(share * n) travel, those of the largest magnitude,
the first of equals. Where they lie is told by whichever is shorter: their places, in as few bits as n needs,
or one bit for every value. A tensor of which that would be no less than all travels whole. Everything follows
from the shape, the bits and the share, so both sides know how many bytes there are.

>>> import torch
>>> packed = encode_largest(torch.tensor([0.0, 0, -3, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]), 32, share=0.1)
>>> packed.nbytes, decode_any(packed).nonzero().flatten().tolist()  # two values in 32 bits, two places in 4
(9, [2, 8])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heroes import seeds
from heroes.errors import ExchangeError
from heroes.messages import Integers, Tensors
from heroes.slices.exchange import Bytes, Packed, Rounding, decode, encode, tensors_bytes

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Largest:
    """The largest values of a tensor as they travel, and where they lie."""

    places: Bytes
    values: Packed
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.places.nbytes + self.values.nbytes

    def joined(self) -> bytes:
        """All of it in one piece: the places, then the values."""
        return self.places.tobytes() + self.values.joined()


Piece = Packed | Largest
Upload = Mapping[str, Piece]


def kept(shape: Shape, bits: int, share: float) -> int:
    """How many values of a tensor travel: all where the largest of them would not be fewer bytes.

    >>> kept((100,), 32, 0.1), kept((100,), 32, 0.99), kept((3,), 32, 0.1)
    (10, 100, 1)
    """
    count = math.prod(shape)
    most = min(count, math.ceil(share * count))
    few = _place_bytes(count, most) + tensors_bytes([(most,)], bits)
    return most if few < tensors_bytes([shape], bits) else count


def upload_bytes(shapes: Iterable[Shape], bits: int, share: float = 1.0) -> int:
    """Bytes on the wire of an upload of tensors of these shapes."""
    total = 0
    for shape in shapes:
        most, count = kept(shape, bits, share), math.prod(shape)
        sparse = most < count
        total += tensors_bytes([(most,) if sparse else shape], bits)
        total += _place_bytes(count, most) if sparse else 0
    return total


def _place_bytes(count: int, most: int) -> int:
    return min(-(-count // 8), -(-most * _width(count) // 8))


def _width(count: int) -> int:
    """Bits of a place among so many."""
    return max(1, (count - 1).bit_length())


def encode_largest(tensor: Tensor, bits: int, share: float, rng: Rounding = None) -> Piece:
    """Pack the largest values of a tensor, or all where that is no more."""
    most, count = kept(tuple(tensor.shape), bits, share), tensor.numel()
    if most == count or not bool(torch.isfinite(tensor).all()):  # what is not finite is refused there
        return encode(tensor, bits, rng)
    flat = tensor.detach().to("cpu", torch.float32).reshape(-1)
    where = _largest(np.abs(flat.numpy()), most)
    packed = encode(flat[torch.from_numpy(where)], bits, rng)
    return Largest(_pack_places(where, count), packed, tuple(tensor.shape))


def _largest(sizes: np.ndarray[tuple[int], np.dtype[np.float32]], most: int) -> Integers:
    """The places of the largest, in order; of equals the first."""
    bar = np.partition(sizes, len(sizes) - most)[len(sizes) - most]
    above = np.flatnonzero(sizes > bar)
    level = np.flatnonzero(sizes == bar)[: most - len(above)]
    return np.sort(np.concatenate([above, level]))


def _pack_places(where: Integers, count: int) -> Bytes:
    if _place_bytes(count, len(where)) == -(-count // 8):
        there = np.zeros(count, np.uint8)
        there[where] = 1
        return np.packbits(there, bitorder="little")
    shifts = np.arange(_width(count))
    return np.packbits(((where[:, None] >> shifts) & 1).astype(np.uint8), bitorder="little")


def _unpack_places(data: Bytes, count: int, most: int) -> Integers:
    """Where the values lie; ExchangeError where that cannot be."""
    single = np.unpackbits(data, bitorder="little")
    if _place_bytes(count, most) == -(-count // 8):
        where = np.flatnonzero(single)
    else:
        width = _width(count)
        table = single[: most * width].reshape(most, width).astype(np.int64)
        where = (table << np.arange(width)).sum(axis=1)
        if bool(single[most * width :].any()):
            raise ExchangeError("an upload has bits after its last place")
    if len(where) != most or bool((np.diff(where) <= 0).any()) or bool((where >= count).any()):
        raise ExchangeError(f"an upload does not say where its {most} values lie among {count}")
    return where


def decode_any(piece: Piece) -> Tensor:
    """The tensor, in float32, with zeros where nothing travelled."""
    if isinstance(piece, Packed):
        return decode(piece)
    flat = torch.zeros(math.prod(piece.shape))
    where = _unpack_places(piece.places, len(flat), piece.values.shape[0])
    flat[torch.from_numpy(where)] = decode(piece.values)
    return flat.reshape(piece.shape)


def parted(data: bytes, shape: Shape, bits: int, share: float = 1.0) -> Piece:
    """What `joined` made one piece of; ExchangeError where it cannot be that."""
    count = math.prod(shape)
    if any(size < 0 for size in shape) or (most := kept(shape, bits, share)) == count:
        return Packed.parted(data, shape, bits)
    places = _place_bytes(count, most)
    if len(data) < places:
        raise ExchangeError(f"an upload of shape {shape} needs more than {len(data)} bytes")
    return Largest(np.frombuffer(data[:places], np.uint8), Packed.parted(data[places:], (most,), bits), shape)


def pack_update(
    trained: Tensors, received: Tensors, bits: int, seed: int | None, share: float = 1.0
) -> Upload:
    """A client's upload: differences from what it received, or tensors themselves that travel as they are.

    Rounded at random from the seed, in a stream named after the tensor; without a seed to nearest.
    """
    return {
        name: _packed(name, tensor, tensor.float() - received[name], bits, share, seed)
        for name, tensor in trained.items()
    }


def pack_with_feedback(
    trained: Tensors, received: Tensors, bits: int, residuals: Tensors, share: float = 1.0
) -> tuple[Upload, dict[str, Tensor]]:
    """The same with error feedback: the upload, and the client's new residuals.

    Rounded to nearest, which always leaves less than there was; at random it can leave more, and at 2 bits
    the residual of a long row grows to ten times its differences.
    """
    packed: dict[str, Piece] = {}
    left: dict[str, Tensor] = {}
    for name, tensor in trained.items():
        residual = residuals[name]
        wanted = tensor.float() - received[name] + residual
        whole = tensor + residual if bool(residual.any()) else tensor
        piece = packed[name] = _packed(name, whole, wanted, bits, share, None)
        left[name] = torch.zeros_like(residual) if _itself(piece) else wanted - decode_any(piece)
    return packed, left


def _packed(name: str, whole: Tensor, change: Tensor, bits: int, share: float, seed: int | None) -> Piece:
    """One tensor of an upload: what it has become, where all of that travels in 32 bits, or its change."""
    try:
        if bits == 32 and kept(tuple(whole.shape), bits, share) == whole.numel():
            return encode(whole, bits)
        rng = None if seed is None else seeds.stream(seed, "rounding", name)
        return encode_largest(change, bits, share, rng)
    except ExchangeError as error:
        raise ExchangeError(f"{name}: {error}") from error


def _itself(piece: Piece) -> bool:
    """Whether a piece holds a tensor as it is, not its difference."""
    return isinstance(piece, Packed) and piece.bits == 32


def unpack_update(packed: Upload, received: Tensors) -> dict[str, Tensor]:
    """What the server makes of an upload, given what the client received."""
    if packed.keys() != received.keys():
        raise ExchangeError(f"tensor names differ: {sorted(packed.keys() ^ received.keys())[0]}")
    for name, piece in packed.items():
        if piece.shape != tuple(received[name].shape):
            raise ExchangeError(f"{name} has shape {piece.shape} instead of {tuple(received[name].shape)}")
    return {
        name: decode_any(piece) if _itself(piece) else received[name] + decode_any(piece)
        for name, piece in packed.items()
    }
