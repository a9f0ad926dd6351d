"""Brings a data set into the data directory: from its public address, another one, or a local copy."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from heroes.data import archives
from heroes.data.datasets import Progress, data_directory
from heroes.data.downloading import Patience, download, md5_of
from heroes.data.registry import REGISTRY, PublicData, PublicFile, public_data
from heroes.errors import DataError


@dataclass(frozen=True)
class Listing:
    """A data set and what of it lies in the data directory."""

    name: str
    title: str
    path: Path
    present: bool
    size: int  # bytes on disk
    how: str  # how to get it


def get(
    name: str,
    directory: str | Path | None = None,
    source: str | Path | None = None,
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> Path:
    """Put the named data set into the data directory and return its folder.

    Args:
        name: of the data set.
        directory: the data directory, if not the usual one.
        source: a file, a folder, or an address: of one file, or, ending in a slash, of the place where all
            the files are.
        progress: hears how far it is.
        patience: how long to try.
    """
    data = public_data(name)
    folder = data_directory(directory) / name
    if source is None and not data.files:
        raise DataError(f"{name} cannot be downloaded: {data.by_hand}")
    if source is None or str(source).startswith(("http://", "https://")):
        _from_address(data, folder, None if source is None else str(source), progress, patience)
    else:
        _from_disk(Path(source).expanduser(), folder)
    return folder


def listed(directory: str | Path | None = None) -> tuple[Listing, ...]:
    """Every data set that can be got, and whether it is there."""
    base = data_directory(directory)
    return tuple(
        Listing(
            name,
            data.title,
            base / name,
            _anything(base / name),
            _bytes_in(base / name),
            data.by_hand or f"heroes data get {name}",
        )
        for name, data in REGISTRY.items()
    )


def _from_address(
    data: PublicData, folder: Path, source: str | None, progress: Progress | None, patience: Patience | None
) -> None:
    for file in _wanted(data, source):
        target = folder / file.name
        if _unpacked_before(target, file):
            continue
        if not target.is_file() or file.md5 not in (None, md5_of(target)):
            _from_any(file, target, progress, patience)
        if archives.is_archive(target):
            made = _unpack(target, folder)
            _stamp(target).write_text(json.dumps([list(file.addresses), made]), encoding="utf-8")
            target.unlink()


def _stamp(archive: Path) -> Path:
    """Beside what was unpacked: where the archive was from, and what was in it."""
    return archive.with_name(f".{archive.name}.unpacked")


def _unpacked_before(archive: Path, file: PublicFile) -> bool:
    if archive.is_file() or not _stamp(archive).is_file():
        return False
    try:
        addresses, made = json.loads(_stamp(archive).read_text(encoding="utf-8"))
        return addresses == list(file.addresses) and all((archive.parent / name).exists() for name in made)
    except (OSError, ValueError, TypeError, RecursionError):  # a stamp that is damaged says nothing
        return False


def _wanted(data: PublicData, source: str | None) -> tuple[PublicFile, ...]:
    """The files to download: the public ones, the same from another place, or the one that the user names."""
    if source is None:
        return data.files
    if source.endswith("/"):
        return tuple(PublicFile(file.name, (source + file.name,), file.md5) for file in data.files)
    name = Path(unquote(urlsplit(source).path)).name or "download"
    known = {file.name: file.md5 for file in data.files}
    return (PublicFile(name, (source,), known.get(name)),)


def _from_any(file: PublicFile, target: Path, progress: Progress | None, patience: Patience | None) -> None:
    """Try one address after the other; when all fail, say how to do without the network."""
    reasons = []
    for address in file.addresses:
        try:
            download(address, target, file.md5, progress, patience)
            return
        except DataError as error:
            reasons.append(str(error))
    raise DataError(
        f"{'; '.join(reasons)}. Get {file.name} in another way and put it into {target.parent}, "
        "then say this again; or give its path or address by --from"
    )


def _from_disk(source: Path, folder: Path) -> None:
    """Take a copy of a folder, file or archive; a folder of images stays where it is and is linked to."""
    if not source.exists():
        raise DataError(f"there is no file or folder {source}")
    if source.resolve() == folder.resolve():
        return
    if archives.is_archive(source):
        _unpack(source, folder)
    elif source.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        half = folder / f"{source.name}.part"
        shutil.copyfile(source, half)
        os.replace(half, folder / source.name)
    elif folder.name == "imagenet100":
        _link(source, folder)
    else:
        with _aside(folder) as scratch:
            shutil.copytree(source, scratch, dirs_exist_ok=True)


def _link(source: Path, folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    if folder.exists():
        raise DataError(
            f"{folder} exists already; remove it first, or use the images from {source} by data.source"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(source.resolve(), target_is_directory=True)


def _unpack(archive: Path, folder: Path) -> list[str]:
    """Unpack into the folder; the names of what is new there."""
    with _aside(folder) as scratch:
        archives.unpack(archive, scratch)
        return sorted(path.name for path in scratch.iterdir())


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A scratch folder whose contents move into `folder` only if all went well."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as scratch:
        yield Path(scratch)
        for path in sorted(Path(scratch).iterdir()):
            target = folder / path.name
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            os.replace(path, target)


def _anything(folder: Path) -> bool:
    return folder.is_dir() and any(
        not path.name.startswith(".") and path.suffix != ".part" for path in folder.iterdir()
    )


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
