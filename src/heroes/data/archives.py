"""Tar and zip archives, unpacked so that nothing can land outside the folder meant for it."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

from heroes.errors import DataError

_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)


def is_archive(path: Path) -> bool:
    """Whether this is a file that `unpack` takes, by its name."""
    return path.is_file() and path.name.lower().endswith((*_TAR, ".zip"))


def unpack(archive: Path, folder: Path, only: Collection[str] | None = None) -> None:
    """Unpack an archive into a folder; with `only`, just the files of these names, wherever they lie in the archive."""
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, folder, only)
        elif tarfile.is_tarfile(archive):
            _untar(archive, folder, only)
        else:
            raise DataError(f"{archive} is not a tar or zip archive")
    except _BROKEN as error:
        raise DataError(f"{archive} cannot be unpacked: {error}") from error


def _untar(archive: Path, folder: Path, only: Collection[str] | None) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            if only is None or (member.isfile() and Path(member.name).name in only):
                tar.extract(member, folder, filter="data")


def _unzip(archive: Path, folder: Path, only: Collection[str] | None) -> None:
    """Python's zip reader drops leading slashes and dots by itself."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder, [info for info in file.infolist() if only is None or Path(info.filename).name in only])
