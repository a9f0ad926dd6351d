"""Writes the files of a report so that each is complete or absent; a full disk leaves the old file."""

from __future__ import annotations

from pathlib import Path

from heroes import files
from heroes.errors import RunFolderError


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a draft next to the file, flush it and rename it. Pipes and the like are written to directly.

    Lone surrogates, which UTF-8 cannot hold, are written as escapes.
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
