"""Files of a report, whole or not there: a full disk leaves what was there before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from heroes.errors import RunFolderError


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a draft beside the file, flush it and rename it; a pipe or the like is written to directly.

    Lone surrogates, which UTF-8 does not have, are written as escapes.
    """
    data = content if isinstance(content, bytes) else content.encode(errors="backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)  # a link goes on pointing to it
    except OSError as error:
        raise RunFolderError(f"cannot write {str(path)!r}: {error.strerror}") from None
    return path


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}.part")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
