"""Images decoded once, into a memory-mapped file of bytes (N, 3, size, size) beside the folder of images.

While it is being made, `states` holds one byte for every image that is done. After an interruption the next
attempt goes on from there. `index.json` is written last, in one step: a cache with an index is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from heroes.data.datasets import Progress
from heroes.data.examples import Bytes
from heroes.errors import DataError

CHUNK = 1024  # images between two marks; an interruption costs at most so many
_KEPT, _BROKEN = b"k", b"b"
_AGAIN = "delete it, and it will be made again"
# others run programs to be read, or are no photographs
_FORMATS = (
    "BMP",
    "GIF",
    "JPEG",
    "PNG",
    "PPM",
    "TIFF",
    "WEBP",
)
_ALWAYS_FINE, _MOST_SHRUNK = 1 << 24, 1 << 13  # pixels; pixels in a byte of a file


@dataclass(frozen=True)
class ImageCache:
    """The decoded images, which of the files they are (`kept`), and the unreadable files with the reason."""

    images: Bytes
    kept: tuple[int, ...]
    skipped: tuple[str, ...]


def cached(
    folder: Path, files: Sequence[Path], size: int, progress: Progress | None = None, chunk: int = CHUNK
) -> ImageCache:
    """The images of these files at size x size, from the cache in `folder`, which is completed first."""
    index = folder / "index.json"
    if not index.is_file():
        require_pillow()
        folder.mkdir(parents=True, exist_ok=True)
        _build(folder, files, size, progress, chunk)
        _complete(folder, files, index)
    try:
        found = json.loads(index.read_text(encoding="utf-8"))
        states, skipped = str(found["states"]), tuple(map(str, found["skipped"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"the image cache {folder} is damaged ({error}); {_AGAIN}") from error
    if len(states) != len(files):
        raise DataError(
            f"the image cache {folder} is damaged ({len(states)} of {len(files)} images); {_AGAIN}"
        )
    return _opened(folder, states, skipped, size)


def require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise DataError(
            "reading images needs pillow; install it by `pip install 'heroes-fl[images]'`"
        ) from error


def _build(folder: Path, files: Sequence[Path], size: int, progress: Progress | None, step: int) -> None:
    """Decode what is still to be done, in parallel; pillow lets other threads run while it decodes."""
    states, pixels, reasons = (_touched(folder / name) for name in ("states", "images", "reasons.jsonl"))
    done = states.read_bytes()[: len(files)]
    row, at = 3 * size * size, done.count(_KEPT)
    with (
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
        pixels.open("r+b") as to,
        states.open("r+b") as marks,
    ):
        try:
            for start in range(len(done), len(files), step):
                chunk = files[start : start + step]
                results = list(pool.map(partial(decode, size=size), chunk))
                good = [result for result in results if isinstance(result, np.ndarray)]
                to.seek(at * row)
                to.write(b"".join(image.tobytes() for image in good))
                _note(reasons, chunk, results)
                _safe(to)  # the pixels first, then the mark that says they are there
                marks.seek(start)
                marks.write(
                    b"".join(_KEPT if isinstance(result, np.ndarray) else _BROKEN for result in results)
                )
                _safe(marks)
                at += len(good)
                if progress is not None:
                    progress("decoding images", start + len(chunk), len(files))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def unreadable(files: Sequence[Path], progress: Progress | None = None) -> tuple[str, ...]:
    """The files that cannot be decoded, each with the reason; nothing is kept."""
    require_pillow()
    found: list[str] = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for start in range(0, len(files), CHUNK):
            chunk = files[start : start + CHUNK]
            results = pool.map(partial(decode, size=8), chunk)
            found += [
                f"{path} ({result})"
                for path, result in zip(chunk, results, strict=True)
                if isinstance(result, str)
            ]
            if progress is not None:
                progress("checking images", start + len(chunk), len(files))
    return tuple(found)


def decode(path: Path, size: int) -> Bytes | str:
    """The image as bytes (3, size, size), whatever its colours were; or why it cannot be read."""
    from PIL import Image

    try:
        with Image.open(path, formats=_FORMATS) as image:
            if image.width * image.height > max(_ALWAYS_FINE, _MOST_SHRUNK * path.stat().st_size):
                raise ValueError(
                    f"it claims {image.width} x {image.height} pixels, more than a file of its size can hold"
                )
            image.draft("RGB", (2 * size, 2 * size))  # large photographs: decode no more than needed
            return shrunk(image, size)
    except Exception as error:  # a broken file can break a decoder in any way
        return f"{type(error).__name__}: {error}"


def shrunk(image: Any, size: int) -> Bytes:
    """A picture of pillow's as bytes (3, size, size)."""
    from PIL import Image

    small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(small, dtype=np.uint8).transpose(2, 0, 1))


def _touched(path: Path) -> Path:
    path.touch()
    return path


def _safe(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _note(reasons: Path, chunk: Sequence[Path], results: Sequence[Bytes | str]) -> None:
    lines = [json.dumps([str(path), r]) for path, r in zip(chunk, results, strict=True) if isinstance(r, str)]
    if lines:
        with reasons.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def _reasons(path: Path) -> dict[str, str]:
    """Why images could not be read. A line that was cut off by an interruption is left out."""
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError, RecursionError):
            image, reason = json.loads(line)
            found[str(image)] = str(reason)
    return found


def _complete(folder: Path, files: Sequence[Path], index: Path) -> None:
    states = (folder / "states").read_bytes()
    if len(states) != len(files) or set(states) - {*_KEPT, *_BROKEN}:
        raise DataError(f"the image cache {folder} is damaged (its marks are wrong); {_AGAIN}")
    why = _reasons(folder / "reasons.jsonl")
    broken = [str(path) for path, state in zip(files, states, strict=True) if state == _BROKEN[0]]
    text = json.dumps(
        {"states": states.decode(), "skipped": [f"{path} ({why.get(path, 'unreadable')})" for path in broken]}
    )
    half = index.with_suffix(f".{os.getpid()}.part")
    half.write_text(text, encoding="utf-8")
    half.replace(index)


def _opened(folder: Path, states: str, skipped: tuple[str, ...], size: int) -> ImageCache:
    kept = tuple(i for i, state in enumerate(states) if state == _KEPT.decode())
    if not kept:
        raise DataError(
            f"not one of {len(skipped)} images could be read; the first: {skipped[0] if skipped else 'none'}"
        )
    path = folder / "images"
    there = path.stat().st_size if path.is_file() else 0
    if there != len(kept) * 3 * size * size:
        raise DataError(f"the image cache {folder} is damaged ({there} bytes); {_AGAIN}")
    # "c": pages are read when they are needed and shared with the file; a write would stay in memory, never
    # in the cache
    images: Bytes = np.memmap(path, dtype=np.uint8, mode="c", shape=(len(kept), 3, size, size))
    return ImageCache(images, kept, skipped)
