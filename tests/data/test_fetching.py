"""Data sets brought into the data directory from addresses, archives, files and folders."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from heroes.data import DataOptions, Patience, data_directory, get, listed, load, verify
from heroes.data.archives import unpack
from heroes.data.registry import REGISTRY
from heroes.errors import DataError

QUICK = Patience(tries=2, pause=0.001, timeout=5)


def test_an_archive_from_an_address_is_unpacked_and_not_fetched_again(server, tmp_path, cifar_folder, tarred):
    server.files["/mine.tar.gz"] = tarred(cifar_folder)
    address = f"{server.address}/mine.tar.gz"
    folder = get("cifar10", tmp_path / "data", address, patience=QUICK)
    assert folder == tmp_path / "data" / "cifar10"
    assert len(load("cifar10", DataOptions(directory=tmp_path / "data")).train) == 150
    get("cifar10", tmp_path / "data", address, patience=QUICK)
    assert len(server.asked) == 1
    assert not list((tmp_path / "data").glob(".part-*"))


def test_a_mirror_must_have_the_official_files(server, tmp_path, idx_folder):
    for path in idx_folder.iterdir():
        server.files[f"/mnist/{path.name}"] = path.read_bytes()
    with pytest.raises(
        DataError,
        match=r"f68b3c2dcbeaaa9fbdd348bbdeb94873 is right.*put it into .*mnist, then say this again",
    ):
        get("mnist", tmp_path, f"{server.address}/mnist/", patience=QUICK)
    assert not listed(tmp_path)[[row.name for row in listed(tmp_path)].index("mnist")].present


def test_no_network_says_where_to_put_the_file_and_then_it_works(tmp_path, works):
    nowhere = "http://127.0.0.1:9/1994-01-100.zip"
    with pytest.raises(DataError, match=r"Get 1994-01-100.zip in another way and put it into .*shakespeare"):
        get("shakespeare", tmp_path, nowhere, patience=QUICK)
    with zipfile.ZipFile(tmp_path / "shakespeare" / "1994-01-100.zip", "w") as file:
        file.writestr("100.txt", works)
    get("shakespeare", tmp_path, nowhere, patience=QUICK)
    assert load("shakespeare", DataOptions(directory=tmp_path)).owners is not None


def test_a_folder_and_a_file_are_copied(tmp_path, idx_folder, works):
    assert (get("mnist", tmp_path, idx_folder) / "t10k-labels-idx1-ubyte").is_file()
    (tmp_path / "mine.txt").write_text(works)
    assert (get("shakespeare", tmp_path, tmp_path / "mine.txt") / "mine.txt").read_text() == works
    assert {row.name for row in listed(tmp_path) if row.present} == {"mnist", "shakespeare"}
    assert all((row.size > 0) == row.present for row in listed(tmp_path))


def test_a_folder_of_images_is_linked_to_and_an_archive_of_one_unpacked(tmp_path, tarred):
    images = tmp_path / "pictures"
    for split in ("train", "val"):
        (images / split / "cat").mkdir(parents=True)
    linked = get("imagenet100", tmp_path / "a", images)
    assert linked.is_symlink()
    assert linked.resolve() == images.resolve()
    assert get("imagenet100", tmp_path / "a", images) == linked  # again
    (tmp_path / "p.tar.gz").write_bytes(tarred(images))
    assert (get("imagenet100", tmp_path / "b", tmp_path / "p.tar.gz") / "pictures" / "train" / "cat").is_dir()
    with pytest.raises(DataError, match="exists already"):
        get("imagenet100", tmp_path / "b", images)


def test_imagenet_explains_what_to_give(tmp_path):
    with pytest.raises(DataError, match=r"no public address.*train/<class>.*--from"):
        get("imagenet100", tmp_path)


def test_mistakes_are_named(tmp_path):
    with pytest.raises(DataError, match="unknown data set 'cifar': did you mean 'cifar10'"):
        get("cifar", tmp_path)
    with pytest.raises(DataError, match="no file or folder"):
        get("cifar10", tmp_path, tmp_path / "nothing")
    with pytest.raises(DataError, match="heroes data get cifar10"):
        load("cifar10", DataOptions(directory=tmp_path))
    (tmp_path / "bad.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(DataError, match="not a tar or zip archive"):
        get("cifar10", tmp_path, tmp_path / "bad.tar.gz")
    assert not listed(tmp_path)[0].present


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_an_archive_cannot_write_outside_its_folder(tmp_path, name):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        tar.addfile(link)
    (tmp_path / "evil.tar").write_bytes(stream.getvalue())
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as file:
        file.writestr(name, "x")
    inside = tmp_path / "deep" / "inside"
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "evil.tar", inside)
    unpack(tmp_path / "evil.zip", inside)
    assert {p.name for p in tmp_path.iterdir()} == {"deep", "evil.tar", "evil.zip"}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["inside"]


def test_a_cut_off_archive_leaves_nothing_behind(tmp_path, cifar_folder, tarred):
    (tmp_path / "half.tar.gz").write_bytes(tarred(cifar_folder)[:40_000])
    with pytest.raises(DataError, match="cannot be unpacked"):
        get("cifar10", tmp_path / "data", tmp_path / "half.tar.gz")
    assert list((tmp_path / "data" / "cifar10").iterdir()) == []


def test_the_data_directory_is_given_or_set_or_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("HEROES_DATA", str(tmp_path / "set"))
    assert data_directory(tmp_path / "given") == tmp_path / "given"
    assert data_directory() == tmp_path / "set"
    monkeypatch.delenv("HEROES_DATA")
    assert data_directory().name == "heroes"


def test_verify_tells_missing_broken_other_and_official_apart(tmp_path, cifar_folder):
    assert verify("cifar10", tmp_path).state == "missing"
    get("cifar10", tmp_path, cifar_folder.parent)
    verdict = verify("cifar10", tmp_path)
    assert (verdict.state, verdict.detail[:48]) == (
        "other",
        "150 training and 20 test examples; it can be use",
    )
    batch = tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:1000])
    assert verify("cifar10", tmp_path).state == "broken"
    assert "data_batch_3" in verify("cifar10", tmp_path).detail


def test_every_download_has_an_address_and_all_but_gutenbergs_a_checksum():
    for name, data in REGISTRY.items():
        assert bool(data.files) != bool(data.by_hand)
        for file in data.files:
            assert all(address.endswith(f"/{file.name}") for address in file.addresses)
            assert (file.md5 is None) == (name == "shakespeare")
