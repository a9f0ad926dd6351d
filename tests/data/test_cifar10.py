"""CIFAR-10: read right, in every dress a pickle can wear, and without running what a hostile file says."""

from __future__ import annotations

import os
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.data import DataOptions, load
from heroes.data.cifar_pickle import read
from heroes.errors import DataError

CPU = torch.device("cpu")


def batch(count: int = 30) -> dict[bytes, object]:
    rng = np.random.default_rng(0)
    return {
        b"labels": rng.integers(0, 10, count).tolist(),
        b"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
        b"filenames": [b"a.png"] * count,
    }


def test_images_and_labels_are_those_of_the_files(cifar_folder):
    data = load("cifar10", DataOptions(source=cifar_folder))
    first = pickle.loads((cifar_folder / "data_batch_1").read_bytes(), encoding="bytes")  # noqa: S301
    test = pickle.loads((cifar_folder / "test_batch").read_bytes(), encoding="bytes")  # noqa: S301
    assert data.train.inputs.shape == (150, 3, 32, 32)
    assert data.train.inputs.dtype == data.train.targets.dtype == torch.uint8
    assert np.array_equal(data.train.inputs[:30].flatten(1).numpy(), first[b"data"])
    assert data.train.targets[:30].tolist() == first[b"labels"]
    assert np.array_equal(data.test.inputs.flatten(1).numpy(), test[b"data"])
    assert data.class_names[3] == "cat"


def test_training_batches_are_varied_by_the_generator_and_test_batches_are_not(cifar_folder):
    data = load("cifar10", DataOptions(source=cifar_folder))
    rows = np.arange(20)
    plain, labels = data.test.batch(rows, CPU)
    again, _ = data.test.batch(rows, CPU, np.random.default_rng(0))
    assert torch.equal(plain, again)
    assert labels.dtype == torch.int64
    pixel = int(data.test.inputs[4, 1, 2, 3])
    assert plain[4, 1, 2, 3].item() == pytest.approx((pixel / 255 - 0.4822) / 0.1994, abs=1e-5)
    one, same, other = (data.train.batch(rows, CPU, np.random.default_rng(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    unvaried = load("cifar10", DataOptions(source=cifar_folder, augment=False))
    assert torch.equal(
        unvaried.train.batch(rows, CPU, np.random.default_rng(1))[0], data.train.batch(rows, CPU)[0]
    )


def test_the_archive_the_folder_and_the_folder_around_either_will_do(tmp_path, cifar_folder, tarred):
    whole = load("cifar10", DataOptions(source=cifar_folder)).train.inputs
    holder = tmp_path / "holder"
    holder.mkdir()
    (holder / "cifar-10-python.tar.gz").write_bytes(tarred(cifar_folder))
    for source in (cifar_folder.parent, holder, holder / "cifar-10-python.tar.gz"):
        assert torch.equal(load("cifar10", DataOptions(source=source)).train.inputs, whole)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("core", [b"numpy._core", b"numpy.core"])
@pytest.mark.parametrize("count", [1, 30])
def test_every_protocol_and_both_names_of_numpys_core_are_read(protocol, core, count):
    made = batch(count)
    raw = pickle.dumps(made, protocol=protocol)
    if protocol < 4:  # later ones hold the length of the name
        raw = raw.replace(b"numpy._core", core)
    tree = read(memoryview(raw))
    assert np.array_equal(tree[b"data"].array(), made[b"data"])
    assert tree[b"labels"] == made[b"labels"]


def python2_pickle(data: np.ndarray, labels: list[int]) -> bytes:
    """What cPickle of Python 2 wrote in 2009, instruction by instruction."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    raw = data.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        + b"cnumpy\nndarray\n"
        + b"K\x00\x85"
        + short(b"b")
        + b"\x87R"
    )
    kind = (
        b"cnumpy\ndtype\n"
        + short(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + short(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    shape = b"".join(b"M" + struct.pack("<H", n) for n in data.shape) + b"\x86"
    state = b"(K\x01" + shape + kind + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + short(b"labels") + numbers + short(b"data") + array + state + b"u."


def test_the_official_layout_of_python_2_is_read():
    data = np.random.default_rng(3).integers(0, 256, (40, 3072), dtype=np.uint8)
    raw = python2_pickle(data, [7] * 40)
    assert np.array_equal(pickle.loads(raw, encoding="bytes")[b"data"], data)  # noqa: S301  the layout is right
    tree = read(memoryview(raw))
    assert np.array_equal(tree[b"data"].array(), data)
    assert tree[b"labels"] == [7] * 40


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, call: object, *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_file_does_not_run(cifar_folder, tmp_path, protocol):
    mark = tmp_path / "mark"
    evil = Hostile(os.mkdir, str(mark))
    (cifar_folder / "data_batch_2").write_bytes(pickle.dumps(batch() | {b"extra": evil}, protocol=protocol))
    with pytest.raises(
        DataError, match=r"data_batch_2 is not a CIFAR-10 batch: the file asks for posix.mkdir"
    ):
        load("cifar10", DataOptions(source=cifar_folder))
    assert not mark.exists()
    pickle.loads((cifar_folder / "data_batch_2").read_bytes())  # noqa: S301  it would have
    assert mark.exists()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"cbuiltins\neval\n(V1+1\ntR.", "builtins.eval"),
        (b"cnumpy\nload\n.", "numpy.load"),
        (b"c_codecs\ndecode\n.", "_codecs.decode"),
        (b"(S'1+1'\nibuiltins\neval\n.", "instruction"),  # INST
        (b"Pperson\n.", "instruction"),  # a persistent id
        (b"\x80\x02\x82\x01.", "instruction"),  # an extension
        (b"c_codecs\nencode\n}S'__call__'\nI1\nsb.", "change a function"),
        (b"cnumpy.core.multiarray\n_reconstruct\nN}S'x'\nI1\ns\x86b.", "change a function"),
        (b"cnumpy\ndtype\n(S'O8'\ntR.", "not of bytes"),
        (b"\x80\x02]r\xff\xff\xff\xff.", "holds a list"),  # a memo of four thousand million places, in C
        (
            b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f",
            "exceeds|EOF|truncated|ran out",
        ),  # bytes without end
        (b"", "EOF|ran out"),
        (b"].", "holds a list"),
    ],
)
def test_what_the_format_does_not_need_is_refused(raw, text):
    with pytest.raises(ValueError, match=text):
        read(memoryview(raw))


@given(st.binary(max_size=200))
def test_noise_gives_an_error_and_nothing_else(noise):
    for raw in (noise, b"\x80\x02" + noise, b"\x80\x04" + noise):
        try:
            read(memoryview(raw))
        except ValueError:
            continue


@given(st.integers(0, 100_000), st.integers(0, 255), st.sampled_from([2, 4, 5]))
def test_a_damaged_batch_gives_an_error_or_a_batch(where, value, protocol):
    raw = bytearray(pickle.dumps(batch(2), protocol=protocol))
    raw[where % len(raw)] = value
    try:
        tree = read(memoryview(bytes(raw)))
        tree[b"data"].array()
    except (ValueError, KeyError, AttributeError):
        pass


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({b"data": np.zeros((30, 3071), dtype=np.uint8)}, r"shape \(n, 3072\)"),
        ({b"data": np.zeros((30, 3072), dtype=np.float32)}, "not of bytes"),
        ({b"data": b"x" * 3072}, r"shape \(n, 3072\)"),
        ({b"labels": [10] * 30}, "from 0 to 9"),
        ({b"labels": [True] * 30}, "from 0 to 9"),
        ({b"labels": None}, "from 0 to 9"),
        ({b"labels": [1] * 29}, "30 images but 29 labels"),
    ],
)
def test_a_batch_that_is_none_is_refused(cifar_folder, change, text):
    (cifar_folder / "data_batch_5").write_bytes(pickle.dumps(batch() | change, protocol=2))
    with pytest.raises(DataError, match=text):
        load("cifar10", DataOptions(source=cifar_folder))


def test_missing_empty_and_huge_files_are_named(cifar_folder):
    path = cifar_folder / "data_batch_4"
    path.write_bytes(b"")
    with pytest.raises(DataError, match="data_batch_4 has 0 bytes"):
        load("cifar10", DataOptions(source=cifar_folder))
    with path.open("wb") as file:
        file.truncate(200_000_000)  # takes no space
    with pytest.raises(DataError, match="at most 100000000"):
        load("cifar10", DataOptions(source=cifar_folder))
    path.unlink()
    with pytest.raises(DataError, match="data_batch_4 is missing"):
        load("cifar10", DataOptions(source=cifar_folder))
    (cifar_folder / "data_batch_1").unlink()
    with pytest.raises(DataError, match="holds no CIFAR-10"):
        load("cifar10", DataOptions(source=cifar_folder))
