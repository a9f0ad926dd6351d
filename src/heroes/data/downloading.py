"""Downloads one file over HTTP: resumes, retries, and puts the file in its place only when it is whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heroes.data.datasets import Progress
from heroes.errors import DataError

_PIECE = 1 << 16
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Patience:
    """How often to retry, how long to wait before (doubled each time), and how long for an answer."""

    tries: int = 5
    pause: float = 1.0
    timeout: float = 30.0


class _InterruptedError(Exception):
    """The connection broke or the server is busy: worth another try."""


def download(
    address: str,
    target: Path,
    md5: str | None = None,
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> Path:
    """Download to `target`. What arrived before a failure is kept in `target.part` and resumed."""
    if not address.startswith(("http://", "https://")):
        raise DataError(f"{address} is not an http or https address")
    patience = patience or Patience()
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    old = _size(part)
    _persist(address, part, progress, patience)
    if md5 is not None and (found := md5_of(part)) != md5:
        part.unlink()
        if old:  # perhaps only what an earlier attempt left was wrong
            return download(address, target, md5, progress, patience)
        raise DataError(f"{address} gives a file with MD5 {found}, but {md5} is right; it was thrown away")
    os.replace(part, target)
    return target


def _persist(address: str, part: Path, progress: Progress | None, patience: Patience) -> None:
    """Try until the file is whole, or until nothing more arrives in so many tries."""
    failures = 0
    while True:
        before = _size(part)
        try:
            _transfer(address, part, progress, patience.timeout)
            return
        except _InterruptedError as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= patience.tries:
                raise DataError(f"{address} cannot be downloaded: {error}") from error
            time.sleep(patience.pause * 2 ** (failures - 1))


def _transfer(address: str, part: Path, progress: Progress | None, timeout: float) -> None:
    """Ask for what is missing and write down what comes."""
    have = _size(part)
    request = urllib.request.Request(
        address, headers={"User-Agent": "heroes", **({"Range": f"bytes={have}-"} if have else {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            if answer.status != http.client.PARTIAL_CONTENT:
                have = 0  # the server sends everything
            _write(answer, part, have, progress)
    except urllib.error.HTTPError as error:
        with error:
            _refused(error, address, part, have)
    except (OSError, http.client.HTTPException) as error:
        raise _InterruptedError(str(getattr(error, "reason", error)) or type(error).__name__) from error


def _write(answer: Any, part: Path, have: int, progress: Progress | None) -> None:
    announced = answer.headers.get("Content-Length")
    total = have + int(announced) if announced is not None and announced.isdigit() else None
    with part.open("r+b" if have else "wb") as file:
        file.seek(have)
        file.truncate()
        while piece := answer.read(_PIECE):
            file.write(piece)
            have += len(piece)
            if progress is not None:
                progress(part.name.removesuffix(".part"), have, total)
    if total is not None and have < total:
        raise _InterruptedError(f"it ended after {have} of {total} bytes")


def _refused(error: urllib.error.HTTPError, address: str, part: Path, have: int) -> None:
    if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
        if error.headers.get("Content-Range", "").endswith(f"/{have}"):
            return  # everything was there already
        part.unlink()
        raise _InterruptedError("what was left of an earlier attempt does not fit")
    if error.code in _TRANSIENT:
        raise _InterruptedError(f"the server says {error.code} {error.reason}")
    raise DataError(f"{address} cannot be downloaded: the server says {error.code} {error.reason}")


def md5_of(path: Path) -> str:
    """The MD5 of a file: what the data sets were published with. It finds accidents, not forgers."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
