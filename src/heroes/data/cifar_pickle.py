"""Reads the pickles of CIFAR-10 without trusting them.

A pickle is a program. This reader knows only the instructions that the format needs, and gives the program
stand-ins instead of the functions it asks for: nothing outside this file can be called, and numpy never sees
a state that a file made up. It is the reader written in Python, because the one in C can be made to fill the
memory by a few bytes.

The pixels, 31 million bytes a file, are not copied on the way: they stay views of the file, or go into a
mapping of their own, which the system takes back at once when it is done with (the heap would keep them).
"""

from __future__ import annotations

import codecs
import mmap
import pickle
import struct
from math import prod
from typing import Any, ClassVar, NoReturn

import numpy as np

from heroes.data.examples import Bytes

_LARGE = 1 << 16  # from here on, contents are not copied
_PIECE = 1 << 20
_MOST_DIMENSIONS = 8
_LARGEST = 1 << 40  # number in a shape


class ArrayRecord:
    """What the pickle says about an array of bytes: its shape and its contents."""

    __slots__ = ("fortran", "raw", "shape")

    def __init__(self) -> None:
        self.shape: Any = None
        self.raw: Any = None
        self.fortran: Any = False

    def __setstate__(self, state: Any) -> None:
        _, self.shape, kind, self.fortran, self.raw = state
        if not isinstance(kind, _Kind):
            raise pickle.UnpicklingError("an array without a type")

    def array(self) -> Bytes:
        """The array, without a copy; an error if shape and contents do not agree."""
        shape, raw = self.shape, self.raw
        if (
            not isinstance(raw, bytes | bytearray | memoryview | mmap.mmap)
            or not isinstance(shape, tuple)
            or self.fortran not in (False, 0, "C")
        ):
            raise ValueError("the data is not a plain array of bytes")
        if len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and 0 <= n < _LARGEST for n in shape):
            # not shown: a few bytes can make it endless
            raise ValueError("the shape of the data is not a few whole numbers")
        if prod(shape) != len(raw):
            raise ValueError(f"an array of shape {shape} cannot hold {len(raw)} bytes")
        return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


class _Kind:
    """The type of an array; only bytes are allowed."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like do not matter to bytes."""


class _StandIn:
    """Stands in for a function that the pickle calls by name. The pickle cannot change it."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> NoReturn:
        raise pickle.UnpicklingError("the file tries to change a function")


class _NdarrayName(_StandIn):
    """`numpy.ndarray`, which the format only mentions."""

    __slots__ = ()


class _Reconstruct(_StandIn):
    """numpy's `_reconstruct(ndarray, (0,), b"b")`: an empty array, to be filled by the state that follows."""

    __slots__ = ()

    def __call__(self, kind: Any, shape: Any, code: Any) -> ArrayRecord:
        return ArrayRecord()


class _FromBuffer(_StandIn):
    """numpy's `_frombuffer(bytes, dtype, shape, order)`: an array in the newest protocol."""

    __slots__ = ()

    def __call__(self, raw: Any, kind: Any, shape: Any, order: Any, *_: Any) -> ArrayRecord:
        record = ArrayRecord()
        record.__setstate__((1, shape, kind, order, raw))
        return record


class _Dtype(_StandIn):
    __slots__ = ()

    def __call__(self, name: Any, *_: Any) -> _Kind:
        if name not in ("u1", b"u1", "|u1", "uint8"):
            shown = repr(name) if isinstance(name, str | bytes) else type(name).__name__
            raise pickle.UnpicklingError(f"an array of {shown}, not of bytes (u1)")
        return _Kind()


class _Encode(_StandIn):
    """`_codecs.encode(text, "latin1")`: how Python 3 writes bytes in an old protocol.

    It makes no more than the file has room for.
    """

    __slots__ = ("room",)

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, text: Any, encoding: Any = "latin1") -> bytes | mmap.mmap:
        if not isinstance(text, str | memoryview) or encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("only text in latin1 can stand for bytes")
        self.room -= len(text)
        if self.room < 0:
            raise pickle.UnpicklingError("the file makes more bytes than it has")
        return text.encode("latin-1") if isinstance(text, str) else _from_utf8(text)


_STAND_INS: dict[tuple[str, str], _StandIn] = {
    ("numpy", "ndarray"): _NdarrayName(),
    ("numpy", "dtype"): _Dtype(),
    **{(f"{core}.multiarray", "_reconstruct"): _Reconstruct() for core in ("numpy.core", "numpy._core")},
    **{(f"{core}.numeric", "_frombuffer"): _FromBuffer() for core in ("numpy.core", "numpy._core")},
}

# None of these: persistent ids, extension codes, instances (INST, OBJ, NEWOBJ), buffers out of band.
_NEEDED = (
    "PROTO STOP FRAME MARK POP POP_MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG1 BINFLOAT "
    "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 "
    "EMPTY_LIST APPEND APPENDS LIST EMPTY_DICT SETITEM SETITEMS DICT EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL REDUCE BUILD"
)


def _from_utf8(text: memoryview) -> mmap.mmap:
    """Long latin1 text in UTF-8 as the bytes it stands for, piece by piece."""
    pieces = [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]
    characters = sum(int((np.frombuffer(piece, dtype=np.uint8) & 0xC0 != 0x80).sum()) for piece in pieces)
    decoder = codecs.getincrementaldecoder("utf-8")()
    made = mmap.mmap(-1, max(1, characters))
    for piece in pieces:
        made.write(decoder.decode(piece).encode("latin-1"))
    decoder.decode(b"", final=True)
    return made


class _View:
    """A file in memory, of which long parts are given out without a copy."""

    def __init__(self, contents: memoryview) -> None:
        self.contents = contents
        self.at = 0

    def read(self, count: int) -> bytes | memoryview:
        part = self.contents[self.at : self.at + count]
        self.at += len(part)
        return part if len(part) >= _LARGE else part.tobytes()

    def readline(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n") and self.at < len(self.contents):
            part = self.contents[self.at : self.at + 256].tobytes()
            part = part[: part.find(b"\n") + 1] or part
            line += part
            self.at += len(part)
        return bytes(line)


class _Reader(pickle._Unpickler):
    """The unpickler that knows a part of the instructions and seven names."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in _NEEDED.split())
    }

    def __init__(self, contents: memoryview) -> None:
        super().__init__(_View(contents), encoding="bytes")  # type: ignore[arg-type]
        self.stand_ins = _STAND_INS | {("_codecs", "encode"): _Encode(len(contents))}

    def load_binunicode(self) -> None:
        """Long text stays as it is in the file; only `_codecs.encode` takes it."""
        (length,) = struct.unpack("<I", self.read(4))  # type: ignore[attr-defined]
        raw = self.read(length)  # type: ignore[attr-defined]
        self.append(raw if isinstance(raw, memoryview) else str(raw, "utf-8"))  # type: ignore[attr-defined]

    dispatch[pickle.BINUNICODE[0]] = load_binunicode

    def load_bytearray8(self) -> None:
        """What is there is read; Python would first take the memory that is claimed."""
        (length,) = struct.unpack("<Q", self.read(8))  # type: ignore[attr-defined]
        self.append(self.read(length))  # type: ignore[attr-defined]

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def load_dict(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.append(_filled({}, items))  # type: ignore[attr-defined]

    dispatch[pickle.DICT[0]] = load_dict

    def load_setitem(self) -> None:
        key, value = self.stack[-2:]  # type: ignore[attr-defined]
        del self.stack[-2:]  # type: ignore[attr-defined]
        _filled(self.stack[-1], [key, value])  # type: ignore[attr-defined]

    dispatch[pickle.SETITEM[0]] = load_setitem

    def load_setitems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        _filled(self.stack[-1], items)  # type: ignore[attr-defined]

    dispatch[pickle.SETITEMS[0]] = load_setitems

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.stand_ins:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which no CIFAR-10 file needs")
        return self.stand_ins[module, name]


def _filled(into: Any, items: list[Any]) -> dict[Any, Any]:
    """The dictionary of these alternating keys and values; keys must be text, which hashes quickly."""
    if not isinstance(into, dict) or not all(isinstance(key, str | bytes) for key in items[::2]):
        raise pickle.UnpicklingError("a dictionary whose keys are not text")
    into.update(zip(items[::2], items[1::2], strict=True))
    return into


def read(contents: memoryview) -> dict[bytes, Any]:
    """The dictionary in the pickle, its keys as bytes; ValueError if it is none or asks for more."""
    try:
        tree = _Reader(contents).load()
    except KeyError as error:
        raise ValueError(f"the file has an instruction that no CIFAR-10 file needs ({error})") from error
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        MemoryError,
        OverflowError,
        struct.error,
    ) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    except (AssertionError, ImportError, RecursionError, NameError) as error:
        raise ValueError(f"not a pickle ({type(error).__name__})") from error
    if not isinstance(tree, dict):
        raise ValueError(f"the file holds a {type(tree).__name__}, not a dictionary")
    return {key.encode() if isinstance(key, str) else key: value for key, value in tree.items()}
