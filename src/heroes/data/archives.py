"""Unpacks tar and zip archives, so that nothing lands outside the target folder or overfills the disk."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from heroes.errors import DataError

_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_OPEN: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZ": bz2.open,
    b"\xfd7": lzma.open,
}  # by the first two bytes
_NO_ARCHIVE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError)
_BROKEN = (
    *_NO_ARCHIVE,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
    MemoryError,
)
_LARGEST_PIECE = 1 << 20  # bytes that tarfile may want at a time; only a made-up header wants more


def is_archive(path: Path) -> bool:
    """Whether this is a file that `unpack` takes, by its name."""
    return path.is_file() and path.name.lower().endswith((*_TAR, ".zip"))


def unpack(
    archive: Path, folder: Path, only: Collection[str] | None = None, largest: int | None = None
) -> None:
    """Unpack an archive into a folder; with `only`, just the files of these names, wherever they are in it.

    A file of more than `largest` bytes is refused, and so is an archive that is larger than the free disk
    space.
    """
    try:
        room = _Room(folder, largest)
        if zipfile.is_zipfile(archive):
            _unzip(archive, folder, only, room)
        else:
            _untar(archive, folder, only, room)
    except _BROKEN as error:
        raise DataError(f"{archive} cannot be unpacked: {error}") from error


class _Room:
    """How much may still be unpacked."""

    def __init__(self, folder: Path, largest: int | None) -> None:
        self.largest = largest
        self.left = shutil.disk_usage(
            next(place for place in (folder, *folder.parents) if place.exists())
        ).free

    def take(self, name: str, size: int) -> None:
        if size < 0 or (self.largest is not None and size > self.largest):
            raise ValueError(f"{name!r} in it has {size} bytes; it should have at most {self.largest}")
        self.left -= size
        if self.left < 0:
            raise ValueError(f"up to {name!r} it has {-self.left} bytes more than the disk has room for")


class _Pieces:
    """A file that is read in small pieces only: an archive can claim any length for a header."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LARGEST_PIECE:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        return self.file.read(size)


def _untar(archive: Path, folder: Path, only: Collection[str] | None, room: _Room) -> None:
    """Files and folders; a link could lead outside, and no data set needs one."""
    with archive.open("rb") as raw:
        start = raw.read(2)
    with _OPEN.get(start, Path.open)(archive, "rb") as file:
        try:
            tar = tarfile.open(fileobj=_Pieces(file), mode="r:")  # type: ignore[call-overload]  # noqa: SIM115 (`with` follows)
        except _BROKEN as error:
            raise DataError(f"{archive} is not a tar or zip archive: {error}") from error
        with tar:
            for member in tar:
                room.take(member.name, member.size)
                if only is not None and not (member.isfile() and Path(member.name).name in only):
                    continue
                if not (member.isfile() or member.isdir()):
                    raise tarfile.ExtractError(f"{member.name!r} in it is neither a file nor a folder")
                tar.extract(member, folder, set_attrs=False, filter="data")
                tar.members = []  # else it would remember every member


def _unzip(archive: Path, folder: Path, only: Collection[str] | None, room: _Room) -> None:
    """Python's zip reader drops leading slashes and dots by itself."""
    with zipfile.ZipFile(archive) as file:
        wanted = [info for info in file.infolist() if only is None or Path(info.filename).name in only]
        for info in wanted:
            room.take(info.filename, info.file_size)
        file.extractall(folder, wanted)
