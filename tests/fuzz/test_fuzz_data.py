"""Any data file is read or refused by a HeroesError; no file runs anything, and a small one takes little
memory.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import pickletools
import struct
import zipfile
from contextlib import suppress

import fuzz_targets
import numpy as np
import pytest
from fuzz_targets import file_of
from fuzzing import little_memory, mutated_bytes
from hypothesis import strategies as st

from heroes.data import DataOptions, cifar_pickle, idx, load, shakespeare
from heroes.data.mnist import read_writers
from heroes.errors import ConfigError, DataError, HeroesError
from heroes.fleet.devices import read_fleet

# idx


def idx_bytes(*shape: int) -> bytes:
    header = bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape)
    return header + bytes(int(np.prod(shape)))


PLAIN_IDX = [idx_bytes(3), idx_bytes(2, 3, 4), idx_bytes(0, 3, 4)]


def test_idx(fuzz):
    fuzz(fuzz_targets.idx_file, mutated_bytes([*PLAIN_IDX, *map(gzip.compress, PLAIN_IDX)]))


def test_gzipped_idx(fuzz):
    fuzz(fuzz_targets.idx_file, mutated_bytes(PLAIN_IDX).map(lambda raw: gzip.compress(raw, 1)))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sizes", [(2**32 - 1,) * 3, (60_000, 1000, 1000), (0, 2**32 - 1, 2**32 - 1)])
def test_an_idx_file_that_claims_to_be_huge_takes_little_memory(packed, sizes):
    raw = bytes((0, 0, 8, 3)) + b"".join(n.to_bytes(4, "big") for n in sizes) + bytes(100)
    with little_memory(), pytest.raises(DataError, match="not the idx file"):
        idx.read(file_of(gzip.compress(raw) if packed else raw), 3)


# Tables, texts, and LEAF's JSON


def test_tables(fuzz):
    rows = b"x,y\n1,a\n2,b\n3,a\n,b\n"
    lines = b'{"x": 1, "y": "a"}\n{"x": "b", "y": null}\n{"y": 2.5, "x": [1e999]}\n'
    fuzz(fuzz_targets.table_file, mutated_bytes([rows, rows.replace(b",", b";"), lines, lines * 3]))


def test_leaf(fuzz):
    one = b'{"users": ["u"], "user_data": {"u": {"x": [[' + b"1.0, " * 783 + b'0.5]], "y": [61]}}}'
    fuzz(fuzz_targets.leaf_file, mutated_bytes([one, b'{"users": [], "num_samples": [], "user_data": {}}']))


# The pickles of CIFAR-10


def batch(protocol: int) -> bytes:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (2, 30), dtype=np.uint8)
    return pickle.dumps(
        {b"labels": [1, 2], b"data": data, b"batch_label": b"x", "filenames": [b"a", b"b"]}, protocol=protocol
    )


BATCHES = [batch(protocol) for protocol in range(6)]


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, path: str, call: str) -> None:
        self.path, self.call = path, call

    def __reduce__(self):
        code = f"open({self.path!r}, 'w').close()"
        return {
            "system": (os.system, (f"touch {self.path}",)),
            "eval": (eval, (code,)),
            "exec": (exec, (code,)),
            "import": (__import__, ("os",)),
            "getattr": (getattr, ("", "join")),
            "open": (open, (self.path, "w")),
            "popen": (os.popen, (f"touch {self.path}",)),
        }[self.call]


CALLS = ("system", "eval", "exec", "import", "getattr", "open", "popen")
MARK = file_of(b"").with_name("it-ran")
OPCODES = [op.code.encode("latin-1") for op in pickletools.opcodes]
NAMES = [
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"c_codecs\nencode\n",
]
NAMES += [
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cnumpy._core.numeric\n_frombuffer\n",
    b"cheroes.errors\nHeroesError\n",
]
ARGUMENTS = [
    b"U\x02u1",
    b"X\x06\0\0\0latin1",
    b"K\x05",
    b"I-1\n",
    b"(",
    b")",
    b"}",
    b"]",
    b"N",
    b"q\x01",
    b"h\x01",
    b"C\x02ab",
]
ARGUMENTS += [
    b"X\x08\0\0\0touch it",
    b"V" + str(MARK).encode() + b"\n",
    b"\x96\xff\xff\xff\xff\x00\0\0\0",
    b"T\xff\xff\xff\x7f",
]
PROGRAMS = st.lists(st.sampled_from([*OPCODES, *NAMES, *ARGUMENTS]), max_size=40).map(
    lambda parts: b"\x80\x04" + b"".join(parts)
)


def unpickled(content):
    fuzz_targets.cifar_batch(content)
    assert not MARK.exists()


def test_cifar_pickle(fuzz):
    hostile = [
        pickle.dumps({b"data": Evil(str(MARK), call)}, protocol=p) for call in CALLS for p in (0, 2, 4)
    ]
    fuzz(unpickled, mutated_bytes([*BATCHES, *hostile]))


def test_pickle_programs(fuzz):
    fuzz(unpickled, PROGRAMS.map(lambda program: program + b"."))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("call", CALLS)
def test_a_pickle_runs_nothing(tmp_path, protocol, call):
    content = pickle.dumps({b"data": Evil(str(tmp_path / "ran"), call)}, protocol=protocol)
    with pytest.raises(ValueError, match="no CIFAR-10 file needs"):
        cifar_pickle.read(memoryview(content))
    assert not list(tmp_path.iterdir())


STATE = b"}U\x0c__setstate__cos\nsystem\ns"
DOUBLED = b")q\x000" + b"h\x00h\x00\x86q\x000" * 60 + b"h\x00"  # pairs of pairs of ...: 2 ** 60 tuples
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
KIND = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"


@pytest.mark.parametrize(
    "program",
    [
        ARRAY + STATE + b"b",  # a state that brings a __setstate__
        b"cnumpy\ndtype\n" + STATE + b"b",  # a stand-in that is to be changed
        b"cnumpy\nndarray\n" + STATE + b"b",
        b"cnumpy\nndarray\n)\x81",  # NEWOBJ
        b"(cnumpy\nndarray\no",  # OBJ
        b"(ios\nsystem\n",  # INST
        b"\x82\x01",  # EXT1
        b"X\x02\0\0\0osX\x06\0\0\0system\x93X\x02\0\0\0id\x85R",  # STACK_GLOBAL
        b"X\x05\0\0\0numpyX\x0e\0\0\0core.os.system\x93",
        b"}" + DOUBLED + b"K\x01s",  # a key that is endless to hash
        b"cnumpy\ndtype\n" + DOUBLED + b"\x85R",  # a type that is endless to show
        b"\x96" + struct.pack("<Q", 2**36) + b"abc",  # BYTEARRAY8 of 64 GiB
        b"\x8e" + struct.pack("<Q", 2**36) + b"abc",  # BINBYTES8
        b"B" + struct.pack("<I", 2**32 - 1) + b"abc",
        b"\x95" + struct.pack("<Q", 2**36) + b"abc",  # FRAME
        b"r" + struct.pack("<I", 2**32 - 1) + b"]",  # a memo place that the reader in C would make room for
    ],
)
def test_a_crafted_pickle_is_refused_and_takes_little_memory(program):
    with little_memory(), pytest.raises(ValueError, match=r"\w"):
        cifar_pickle.read(memoryview(b"\x80\x04" + program + b"."))


def test_a_shape_that_is_endless_to_show_is_refused():
    state = b"(K\x01" + DOUBLED + b"\x85" + KIND + b"\x89C\x00tb"
    tree = cifar_pickle.read(memoryview(b"\x80\x04}U\x04data" + ARRAY + state + b"s."))
    with little_memory(), pytest.raises(ValueError, match="not a few whole numbers"):
        tree[b"data"].array()


def test_a_small_pickle_cannot_make_many_bytes():
    text = b"X" + struct.pack("<I", 70_000) + b"x" * 70_000
    again = b"h\x01h\x02U\x06latin1\x86R"
    program = b"\x80\x02c_codecs\nencode\nq\x01" + text + b"q\x02" + again * 2000 + b"."
    with little_memory(), pytest.raises(ValueError, match="more bytes than it has"):
        cifar_pickle.read(memoryview(program.replace(b"U\x06latin1", b"X\x06\0\0\0latin1")))


# The writers of MNIST


def npz(compress: int = zipfile.ZIP_STORED, name: str = "train_writer.npy", **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compress) as archive:
        for array in arrays.values():
            npy = io.BytesIO()
            np.lib.format.write_array(npy, array)
            archive.writestr(name, npy.getvalue())
    return stream.getvalue()


COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
WRITERS = [npz(kind, a=np.arange(5, dtype=dtype)) for kind in COMPRESSIONS for dtype in (np.int16, np.uint64)]
NPY = [zipfile.ZipFile(io.BytesIO(raw)).read("train_writer.npy") for raw in WRITERS[:2]]


def rezipped(npy: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("train_writer.npy", npy)
    return stream.getvalue()


def writers_file(content):
    with suppress(HeroesError):
        assert read_writers(file_of(content, "w.npz"), 5).shape == (5,)


def test_writers(fuzz):
    headers = st.text(alphabet="{}()[],'<>u1i8descrshapfotn:FalTue 0", max_size=60).map(
        lambda text: b"\x93NUMPY\x01\0" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n"
    )
    fuzz(writers_file, mutated_bytes(WRITERS) | mutated_bytes(NPY).map(rezipped) | headers.map(rezipped))


@pytest.mark.parametrize("shape", [(2**40,), (10**9,), (5, 2**60)])
def test_writers_that_claim_to_be_huge_take_little_memory(shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": shape})
    with little_memory(), pytest.raises(DataError, match="each of 5 digits"):
        read_writers(file_of(rezipped(header.getvalue()), "w.npz"), 5)


def test_writers_that_are_a_bomb_take_little_memory():
    with little_memory(), pytest.raises(DataError, match="each of 5 digits"):
        read_writers(file_of(npz(zipfile.ZIP_DEFLATED, a=np.zeros(10_000_000, dtype=np.int8)), "w.npz"), 5)


# Shakespeare

PLAY = """
1603

A PLAY

by William Shakespeare

  ANNA. {0}
    and on and on
    to the end.
  BEN. {0}
    more
    more
"""
WORKS = "x\n\nTHE SONNETS\n\nby William Shakespeare\n" + 2 * PLAY.format(
    "Bread rises while the oven burns, and so do I; " * 40
)


def works(content):
    raw, packed = content
    path = file_of(gzip.compress(raw, 1) if packed else raw, "works.txt.gz" if packed else "works.txt")
    with suppress(HeroesError):
        data = load("shakespeare", DataOptions(source=path))
        data.train.transform(data.train.inputs[-1:], None)
        data.test.transform(data.test.inputs[-1:], None)


def test_shakespeare(fuzz):
    fuzz(
        works,
        st.tuples(
            mutated_bytes([WORKS.encode(), WORKS.encode("utf-8-sig"), WORKS.encode("latin-1")]), st.booleans()
        ),
    )


def broken_gzip(raw):
    with suppress(HeroesError):
        shakespeare._text(file_of(raw, "works.txt.gz"))


def test_shakespeare_gzipped(fuzz):
    fuzz(broken_gzip, mutated_bytes([gzip.compress(WORKS.encode())]))


# Fleets

FLEETS = [
    b"device,gflops,share,upload_mbps,download_mbps\nphone,10,3,1,20\nboard,0.5,1,,\n",
    b"gflops,device\n1e300,a\n1e-320,b\n",
    b'\xef\xbb\xbfdevice,gflops\n"a\nb",1_0\n\xff,nan\n',
    b"device,gflops,share\na,1e9,1e9\nb,1e-9,1e-9\nc,-1,inf,3,4,5\n",
]


def test_fleet(fuzz):
    fuzz(fuzz_targets.fleet_file, mutated_bytes(FLEETS))


@pytest.mark.parametrize("value", ["1e300", "1e-320", "inf", "nan", "-1", "0", "much"])
def test_a_speed_that_nothing_can_be_reckoned_with_is_refused(value):
    with pytest.raises(
        ConfigError, match=f"gflops is '{value}'; it should be a number above 0, from 1e-09 to 1e"
    ):
        read_fleet(file_of(f"device,gflops\na,{value}\n".encode()))


def test_more_devices_than_can_be_numbered_are_refused():
    with pytest.raises(ConfigError, match="has 32768 devices; at most 32767"):
        read_fleet(file_of(b"device,gflops\n" + b"a,1\n" * 32768))
