"""Files that are whole or not there: drafted beside their place, flushed to the disk, then renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

DRAFT = ".part"


def draft_of(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(path.name + DRAFT)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or leave the one that is there as it was; an OSError says why."""
    draft = draft_of(path)
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:  # an interrupt, too
        with suppress(OSError):
            draft.unlink()
        raise
    flush_folder(path.parent)


def write_changed(path: Path, content: bytes) -> None:
    """The same, unless this very content is there already."""
    if not path.is_file() or path.read_bytes() != content:
        write_whole(path, content)


def flush_folder(folder: Path) -> None:
    """A rename is on the disk when the folder is; not every system can be told so."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
