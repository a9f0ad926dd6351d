"""Small data sets as their publishers lay them out, and an HTTP server on loopback that can be told to
misbehave.
"""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@dataclass
class Server:
    """What the server holds, how it misbehaves, and what it was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # send only so many bytes of the next answers
    errors: list[int] = field(default_factory=list)  # statuses of the next answers
    knows_ranges: bool = True
    says_length: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            server.asked.append((self.path, wanted))
            if server.errors or self.path not in server.files:
                self.send_error(server.errors.pop(0) if server.errors else 404)
                return
            content = server.files[self.path]
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.knows_ranges else 0
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if server.says_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: server.cuts.pop(0) if server.cuts else None])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(state)) as http:
        state.address = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield state
        http.shutdown()
        thread.join()


def cifar_batch(count: int, seed: int) -> dict[bytes, Any]:
    rng = np.random.default_rng(seed)
    return {
        b"batch_label": b"training batch 1 of 5",
        b"labels": [int(label) for label in rng.integers(0, 10, count)],
        b"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
        b"filenames": [f"{n}.png".encode() for n in range(count)],
    }


@pytest.fixture
def cifar_folder(tmp_path: Path) -> Path:
    """A CIFAR-10 of 5 x 30 + 20 images."""
    folder = tmp_path / "made" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for n, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / name).write_bytes(
            pickle.dumps(cifar_batch(20 if name == "test_batch" else 30, n), protocol=2)
        )
    return folder


@pytest.fixture
def tarred() -> Callable[[Path], bytes]:
    """A folder as a tar.gz archive."""

    def make(folder: Path) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            tar.add(folder, folder.name)
        return stream.getvalue()

    return make


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def idx_folder(tmp_path: Path) -> Path:
    """An MNIST of 40 + 10 images of 6x5; the training files gzipped, the others not."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "made-idx"
    folder.mkdir()
    for split, count in (("train", 40), ("t10k", 10)):
        images = rng.integers(0, 256, (count, 6, 5))
        for name, array in (("images-idx3", images), ("labels-idx1", np.arange(count) % 10)):
            raw = idx_bytes(array)
            if split == "train":
                (folder / f"{split}-{name}-ubyte.gz").write_bytes(gzip.compress(raw))
            else:
                (folder / f"{split}-{name}-ubyte").write_bytes(raw)
    return folder


SONNETS = """\
Contents: sonnets by no one

1609

THE SONNETS

by William Shakespeare

  Nobody. speaks here, these are sonnets
"""

FIRST_PLAY = """\
1603

A SMALL PLAY

by William Shakespeare


Dramatis Personae

  ANNA, a baker
ACT I

  ANNA. {anna}
    and goes on   {anna}
    to the   end.
                     Enter BEN
  Ben. {ben}
    and so on.
  ANNA. What?
    [Exit]

  BEN. {ben}
  CY. I say little.
    Twice.
"""

FLAT_PLAY = """\
1594




THE COMEDY OF ERRORS

by William Shakespeare


ACT I. SCENE 1

DUKE. {duke}
{duke}
and a third line, flush left.

<<THIS NOTICE IS NOT PART
OF THE PLAY.>>

ACT II. SCENE 1
LUCE. One.
{luce}
{luce}
THE END
"""

MONOLOGUE = """\
1600

ALONE

by William Shakespeare

  HERMIT. One.
    Two.
    Three.
    Four, but with nobody else there is no play.
"""


@pytest.fixture
def works() -> str:
    """Complete works of three plays, laid out as Project Gutenberg did in 1994."""
    play = FIRST_PLAY.format(
        anna="Bread rises while the oven burns, and so do I; " * 30, ben="Call me at noon, not before. " * 40
    )
    flat = FLAT_PLAY.format(
        duke="Proceed, Solinus, to procure my fall. " * 25, luce="Faith, no; he comes too late. " * 25
    )
    return "\n\n".join([SONNETS, play, flat, MONOLOGUE])
