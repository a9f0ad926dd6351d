"""idx files: read right, gzipped or not, never trusted about their size; writers for the natural split."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.data import DataOptions, load, share_out
from heroes.data.idx import read
from heroes.errors import DataError


def huge(*shape: int) -> bytes:
    return bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_images_and_labels_are_those_of_the_files(idx_folder, name):
    data = load(name, DataOptions(source=idx_folder))
    assert data.train.inputs.shape == (40, 1, 6, 5)
    assert data.test.inputs.shape == (10, 1, 6, 5)
    assert data.train.targets.tolist() == [n % 10 for n in range(40)]
    raw = gzip.decompress((idx_folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    assert data.train.inputs.numpy().tobytes() == raw
    inputs, _ = data.test.batch(np.arange(10), torch.device("cpu"))
    mean, std = {"mnist": (0.1307, 0.3081), "fashion_mnist": (0.2860, 0.3530)}[name]
    assert inputs[2, 0, 1, 1].item() == pytest.approx(
        (int(data.test.inputs[2, 0, 1, 1]) / 255 - mean) / std, abs=1e-5
    )
    assert len(data.class_names) == 10
    assert data.owners is None


def test_files_deeper_down_are_found(idx_folder):
    assert len(load("mnist", DataOptions(source=idx_folder.parent)).train) == 40


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(4_000_000_000, 4000, 4000), (100_000, 28, 28)])
def test_a_file_that_claims_to_be_huge_takes_no_memory(tmp_path, packed, shape):
    path = tmp_path / "liar"
    path.write_bytes(gzip.compress(huge(*shape)) if packed else huge(*shape))
    tracemalloc.start()
    with pytest.raises(DataError, match="claims"):
        read(path, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "starts with"),
        (b"\x00\x00\x09\x01\x00\x00\x00\x01x", "starts with 00000901, not 00000801"),
        (b"\x00\x00\x08\x01\x00\x00", "within the header"),
        (huge(3) + b"xx", "holds 2 bytes of 3"),
        (huge(1) + b"xx", "goes on after the 1"),
        (gzip.compress(huge(3) + b"xxx", mtime=0)[:-9], "end-of-stream"),
        (b"\x1f\x8bnot gzip", "not the idx file"),
    ],
)
def test_a_file_that_is_no_idx_file_is_refused(tmp_path, raw, text):
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=text):
        read(path, 1)


@given(st.binary(max_size=60), st.booleans(), st.integers(1, 3))
def test_noise_gives_an_error_or_an_array(tmp_path_factory, noise, packed, dimensions):
    path = tmp_path_factory.mktemp("noise") / "file"
    raw = bytes((0, 0, 8, dimensions)) + noise
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with contextlib.suppress(DataError):
        assert read(path, dimensions).size <= len(noise)


def test_files_that_do_not_fit_together_are_refused(idx_folder):
    labels = idx_folder / "t10k-labels-idx1-ubyte"
    labels.write_bytes(huge(9) + bytes(9))
    with pytest.raises(DataError, match="10 t10k images but 9 labels"):
        load("mnist", DataOptions(source=idx_folder))
    labels.write_bytes(huge(10) + bytes([10] * 10))
    with pytest.raises(DataError, match="the label 10; labels go from 0 to 9"):
        load("mnist", DataOptions(source=idx_folder))
    labels.unlink()
    with pytest.raises(DataError, match="lacks the file t10k-labels-idx1-ubyte"):
        load("mnist", DataOptions(source=idx_folder))


@pytest.mark.parametrize("beside", [True, False])
def test_writers_make_a_natural_split(idx_folder, tmp_path, beside):
    path = idx_folder / "mnist_writer_ids.npz" if beside else tmp_path / "mine.npz"
    np.savez(path, train_writer=np.repeat([2154, 7, 30, 9], 10).astype(np.int16), test_writer=np.zeros(10))
    data = load("mnist", DataOptions(source=idx_folder, writers=None if beside else path))
    assert data.owner_names == ("writer 7", "writer 9", "writer 30", "writer 2154")
    assert data.owners.tolist() == [3] * 10 + [0] * 10 + [2] * 10 + [1] * 10
    shares = share_out("natural", data.train.targets.numpy(), 4, np.random.default_rng(0), owners=data.owners)
    assert shares[0].tolist() == list(range(10, 20))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"train_writer": np.zeros(39, dtype=int)}, "each of 40 digits"),
        ({"train_writer": np.zeros(40)}, "whole number"),
        ({"other": np.zeros(40)}, "train_writer"),
        ({"train_writer": np.array([{}] * 40)}, "gives no writers"),  # would need pickle
    ],
)
def test_writers_that_do_not_fit_are_refused(idx_folder, tmp_path, content, text):
    np.savez(tmp_path / "w.npz", **content)
    with pytest.raises(DataError, match=text):
        load("mnist", DataOptions(source=idx_folder, writers=tmp_path / "w.npz"))


def test_a_writers_file_that_is_none_is_refused(idx_folder, tmp_path):
    (tmp_path / "w.npz").write_bytes(b"PK\x03\x04 no")
    for path in (tmp_path / "w.npz", tmp_path / "nothing.npz"):
        with pytest.raises(DataError, match="gives no writers"):
            load("mnist", DataOptions(source=idx_folder, writers=path))
