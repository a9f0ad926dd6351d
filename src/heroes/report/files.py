"""Files of a report, whole or not there: a full disk leaves what was there before."""

from __future__ import annotations

from pathlib import Path

from heroes import files
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
            files.write_whole(path.resolve(), data)  # a link goes on pointing to it
    except OSError as error:
        raise RunFolderError(f"cannot write {str(path)!r}: {error.strerror}") from None
    return path
