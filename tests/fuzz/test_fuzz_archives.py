"""Any archive or image is unpacked into its folder or refused by a HeroesError; nothing lands elsewhere."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import shutil
import struct
import tarfile
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fuzz_targets import file_of
from fuzzing import little_memory, mutated_bytes, mutated_tree
from hypothesis import strategies as st
from PIL import Image

from heroes.data import DataOptions, load
from heroes.data.archives import unpack
from heroes.data.fetching import get
from heroes.data.image_cache import cached, decode
from heroes.errors import DataError, HeroesError

BATCH = pickle.dumps({b"labels": [1], b"data": np.zeros((1, 3072), dtype=np.uint8)}, protocol=2)
BATCHES = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
ROOT = file_of(b"").parent


def member(name: str, size: int = 0, **changes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    for key, value in changes.items():
        setattr(info, key, value)
    return info


def tar_of(members: list[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zip_of(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


LINKS = [
    member("link", type=tarfile.SYMTYPE, linkname="../../outside"),
    member("link", type=tarfile.SYMTYPE, linkname="/tmp"),
    member("hard", type=tarfile.LNKTYPE, linkname="../outside"),
    member("hard", type=tarfile.LNKTYPE, linkname="data_batch_1"),
    member("pipe", type=tarfile.FIFOTYPE),
    member("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    member("../outside"),
    member("/outside"),
]
WHOLE = [(member(f"cifar-10-batches-py/{name}", 9), b"123456789") for name in BATCHES[:2]]
TARS = [
    tar_of([*WHOLE, (link, b"")], form) for link in LINKS for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)
]
TARS += [
    tar_of(
        [(member("x" * 150 + "é", 3), b"abc"), (member("folder", type=tarfile.DIRTYPE), b"")],
        tarfile.GNU_FORMAT,
    )
]
ZIPS = [
    zip_of({"a/data_batch_1": b"abc" * 9, "../outside": b"x", "/outside": b"x"}, kind)
    for kind in (0, 8, 12, 14)
]
PACKERS = [bytes, lambda raw: gzip.compress(raw, 1), bz2.compress, lambda raw: lzma.compress(raw, preset=0)]


def unpacked(content):
    """Everything lands in the folder, as plain files and folders."""
    raw, only = content
    world = ROOT / "world"
    shutil.rmtree(world, ignore_errors=True)
    folder = world / "deep" / "inside"
    folder.mkdir(parents=True)
    with suppress(HeroesError):
        unpack(file_of(raw, "archive"), folder, only, largest=1_000_000)
    assert [path.name for path in world.iterdir()] == ["deep"]
    assert [path.name for path in (world / "deep").iterdir()] == ["inside"]
    assert not (ROOT / "outside").exists()
    assert all((path.is_file() or path.is_dir()) and not path.is_symlink() for path in folder.rglob("*"))


def test_tar(fuzz):
    only = st.sampled_from([None, BATCHES])
    packed = st.builds(lambda raw, pack: pack(raw), mutated_bytes(TARS), st.sampled_from(PACKERS))
    broken = mutated_bytes([pack(raw) for raw in (TARS[0], TARS[-1]) for pack in PACKERS])
    fuzz(unpacked, st.tuples(packed | broken, only))


def test_zip(fuzz):
    fuzz(unpacked, st.tuples(mutated_bytes(ZIPS), st.sampled_from([None, BATCHES])))


@pytest.mark.parametrize("info", LINKS[:6], ids=lambda info: info.name)
def test_links_and_devices_are_refused(tmp_path, info):
    (tmp_path / "a.tar").write_bytes(tar_of([*WHOLE, (info, b"")]))
    with pytest.raises(DataError, match="is neither a file nor a folder"):
        unpack(tmp_path / "a.tar", tmp_path / "out")
    unpack(tmp_path / "a.tar", tmp_path / "batches", BATCHES)
    assert {path.name for path in (tmp_path / "batches").rglob("data*")} == {"data_batch_1", "data_batch_2"}


def negative() -> bytes:
    """A member of -512 bytes: the next header would be this one again, for ever."""
    header = bytearray(member("loop").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (2**96 - 512).to_bytes(12, "big")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) * 3


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_tar_that_claims_to_be_huge_takes_little_memory(tmp_path, kind):
    """Many zeros in few bytes, as a file or as the text of a header."""
    stream = io.BytesIO()
    with gzip.open(stream, "wb", 1) as file:
        file.write(member("bomb", 120_000_000, type=kind).tobuf(tarfile.GNU_FORMAT))
        for _ in range(12):
            file.write(bytes(10_000_000))
    (tmp_path / "a.tar.gz").write_bytes(stream.getvalue())
    with (
        little_memory(),
        pytest.raises(DataError, match=r"it should have at most 100000000|not a tar or zip archive"),
    ):
        load("cifar10", DataOptions(source=tmp_path / "a.tar.gz"))


def test_a_tar_that_leads_back_to_itself_ends(tmp_path):
    (tmp_path / "a.tar").write_bytes(negative())
    with pytest.raises(DataError, match=r"cannot be unpacked|not a tar"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def test_a_zip_that_is_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    (tmp_path / "a.zip").write_bytes(zip_of({"data_batch_1": bytes(100_000_001)}))
    with (
        little_memory(),
        pytest.raises(DataError, match="'data_batch_1' in it has 100000001 bytes; it should have at most 10"),
    ):
        load("cifar10", DataOptions(source=tmp_path / "a.zip"))


def test_a_zip_with_a_file_that_has_no_name_is_refused(tmp_path):
    nameless = zipfile.ZipInfo("x")
    nameless.filename = ""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(nameless, b"abc")
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_an_archive_larger_than_the_disk_is_refused(tmp_path):
    (tmp_path / "a.tar").write_bytes(member("x", 2**50).tobuf(tarfile.GNU_FORMAT) + bytes(512))
    with pytest.raises(DataError, match="more than the disk has room for"):
        get("imagenet100", tmp_path / "data", tmp_path / "a.tar")


# Images


def picture(form: str, **options: object) -> bytes:
    stream = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    Image.fromarray(noise).save(stream, form, **options)
    return stream.getvalue()


PICTURES = [picture(form) for form in ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")]
PICTURES += [
    picture("JPEG", progressive=True),
    picture("TIFF", compression="tiff_lzw"),
    picture("EPS"),
    picture("ICO"),
]


def image_file(raw):
    result = decode(file_of(raw, "image.png"), 8)
    assert isinstance(result, str) or (result.shape == (3, 8, 8) and result.dtype == np.uint8)


def test_images(fuzz):
    fuzz(image_file, mutated_bytes(PICTURES))


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "size", [(5000, 5000), (9000, 9000), (20_000, 20_000), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1)]
)
def test_a_png_that_claims_to_be_huge_takes_little_memory(size):
    path = file_of(png(*size), "image.png")
    with little_memory():
        assert isinstance(decode(path, 8), str)


def test_an_image_that_would_run_a_program_is_not_one_to_us():
    assert "cannot identify image file" in decode(file_of(picture("EPS"), "image.png"), 8)


# The cache of decoded images

FILES = [file_of(PICTURES[1], "one.png"), file_of(b"broken", "two.png")]
INDEX = {"states": "kb", "skipped": ["two.png (broken)"]}


def cache(content):
    folder = ROOT / "cache"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, raw in content.items():
        (folder / name).write_bytes(raw)
    with suppress(HeroesError):
        made = cached(folder, FILES, 8)
        assert made.images.shape == (len(made.kept), 3, 8, 8)
        assert set(made.kept) <= {0, 1}


def test_cache(fuzz):
    index = mutated_tree(INDEX).map(lambda tree: json.dumps(tree).encode()) | mutated_bytes(
        [json.dumps(INDEX).encode()]
    )
    marks = mutated_bytes([b"kb", b"k", b"", b"kbk", b"\xffb"])
    reasons = mutated_bytes([json.dumps(["two.png", "why"]).encode() + b"\n", b'["two', b"[1, 2]\n3\n"])
    pixels = st.sampled_from([b"", bytes(192), bytes(384), bytes(100)])
    fuzz(
        cache,
        st.fixed_dictionaries({"images": pixels}, optional={"index.json": index})
        | st.fixed_dictionaries({}, optional={"states": marks, "reasons.jsonl": reasons, "images": pixels}),
    )


@pytest.mark.parametrize(
    "files",
    [
        {"index.json": b"{", "images": bytes(192)},
        {"index.json": b'{"states": "k"}', "images": bytes(192)},
        {"index.json": b'{"states": "kkk", "skipped": []}', "images": bytes(576)},
        {"index.json": json.dumps(INDEX).encode()},
        {"states": b"kx"},
    ],
)
def test_a_damaged_cache_says_what_to_do(tmp_path, files):
    for name, raw in files.items():
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match=r"is damaged .*delete it, and it will be made again"):
        cached(tmp_path, FILES, 8)


def test_a_reason_that_was_cut_off_does_not_matter(tmp_path):
    (tmp_path / "states").write_bytes(b"b")
    (tmp_path / "reasons.jsonl").write_bytes(b'["one')
    with pytest.raises(DataError, match="not one of 2 images could be read"):
        cached(tmp_path, FILES, 8)


def test_a_stamp_that_is_damaged_says_nothing(tmp_path):
    from heroes.data.fetching import _unpacked_before
    from heroes.data.registry import PublicFile

    for raw in (b"{", b"3", b"[1]", b'["a", 3]'):
        (tmp_path / ".a.zip.unpacked").write_bytes(raw)
        assert not _unpacked_before(Path(tmp_path) / "a.zip", PublicFile("a.zip", ("x",), None))
