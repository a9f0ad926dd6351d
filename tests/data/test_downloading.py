"""Downloads over real HTTP on loopback: cut off, resumed, refused, wrong."""

from __future__ import annotations

import hashlib
import random
import socket

import pytest

from heroes.data.downloading import Patience, download
from heroes.errors import DataError

CONTENT = random.Random(0).randbytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
QUICK = Patience(tries=3, pause=0.001, timeout=5)


def test_a_file_arrives_and_progress_is_told(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    told = []
    path = download(
        f"{server.address}/a.bin", tmp_path / "x" / "a.bin", MD5, lambda *step: told.append(step), QUICK
    )
    assert path.read_bytes() == CONTENT
    assert told[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert [p.name for p in path.parent.iterdir()] == ["a.bin"]


def test_a_truncated_answer_is_taken_up_where_it_ended(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    server.cuts = [100_000, 50_000]
    path = download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=QUICK)
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_download_given_up_is_resumed_the_next_time(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    server.cuts = [70_000]
    with pytest.raises(DataError, match="ended after 70000 of 300000 bytes"):
        download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=Patience(tries=1, pause=0))
    assert not (tmp_path / "a.bin").exists()
    assert (
        download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=QUICK).read_bytes() == CONTENT
    )
    assert server.asked[-1] == ("/a.bin", "bytes=70000-")


def test_a_server_without_ranges_sends_everything_again(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    server.cuts, server.knows_ranges = [70_000], False
    assert (
        download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=QUICK).read_bytes() == CONTENT
    )


def test_a_server_that_says_no_length_is_checked_by_the_sum(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    server.says_length = False
    assert (
        download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=QUICK).read_bytes() == CONTENT
    )
    server.cuts = [1000]
    with pytest.raises(DataError, match="MD5"):
        download(f"{server.address}/a.bin", tmp_path / "b.bin", MD5, patience=QUICK)


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(server, tmp_path):
    server.files["/a.bin"] = b"something else"
    with pytest.raises(DataError, match=f"{MD5} is right; it was thrown away"):
        download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=QUICK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "left",
    [b"rubbish from another day", CONTENT + b"too much", CONTENT],
    ids=["rubbish", "too much", "all of it"],
)
def test_what_an_earlier_attempt_left_does_no_harm(server, tmp_path, left):
    server.files["/a.bin"] = CONTENT
    (tmp_path / "a.bin.part").write_bytes(left)
    assert (
        download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=QUICK).read_bytes() == CONTENT
    )


def test_a_busy_server_is_asked_again_and_a_refusal_is_final(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    server.errors = [503, 429]
    assert (
        download(f"{server.address}/a.bin", tmp_path / "a.bin", MD5, patience=QUICK).read_bytes() == CONTENT
    )
    server.asked.clear()
    with pytest.raises(DataError, match="the server says 404"):
        download(f"{server.address}/nothing", tmp_path / "b.bin", patience=QUICK)
    assert len(server.asked) == 1


def test_a_server_that_stays_busy_is_given_up(server, tmp_path):
    server.errors = [503] * 9
    with pytest.raises(DataError, match="the server says 503"):
        download(f"{server.address}/a.bin", tmp_path / "a.bin", patience=QUICK)
    assert len(server.asked) == QUICK.tries


def test_no_network_is_one_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(DataError, match=rf"http://127.0.0.1:{port}/a.bin cannot be downloaded: .*refused"):
        download(f"http://127.0.0.1:{port}/a.bin", tmp_path / "a.bin", patience=QUICK)


def test_only_web_addresses_are_opened(tmp_path):
    (tmp_path / "secret").write_text("x")
    with pytest.raises(DataError, match="not an http or https address"):
        download((tmp_path / "secret").as_uri(), tmp_path / "a.bin")
