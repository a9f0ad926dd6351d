"""The folder that a run writes as it goes: configuration, records, checkpoints, model, environment."""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from heroes import __version__
from heroes.errors import RunFolderError
from heroes.files import draft_of, flush_folder, write_changed
from heroes.messages import RoundRecord, ServerState, plain
from heroes.report.now import NOW
from heroes.runs import checkpoints, final
from heroes.runs.served import Served
from heroes.runs.spending import SPENT

CHECKPOINTS = "checkpoints"
LOCK = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)  # what some network file systems say
PARTS = "parts"  # in environment.json: what is not built in, and where it came from
CONFIG, RECORDS, MODEL, ENVIRONMENT = FILES = (
    "config.toml",  # removed first and written first: without it the rest is no run
    "records.jsonl",
    "model.safetensors",
    "environment.json",
)


class RunFolder:
    """Opened at the start of a run; every round is written before the next begins.

    Args:
        config_toml: the text of config.toml; None if the file in the folder is to stay.
        origins: where the parts of the run that are not built in came from.
        after: how many rounds of the run in the folder are kept; later ones are done again.
        settings: what every checkpoint keeps with it.
    """

    def __init__(
        self,
        path: Path,
        config_toml: str | None,
        origins: Mapping[str, Any] | None = None,
        *,
        overwrite: bool = False,
        after: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self._settings = settings or {}
        if after is None:
            refuse_taken(path, overwrite)
        try:
            self._clear(everything=after is None)
            if after is not None:
                _keep_rounds(path / RECORDS, after)
            if config_toml is not None:
                write_changed(path / CONFIG, config_toml.encode())
            if after:
                _reopen(path / RECORDS)
            _describe(path, origins)
            self._records = (path / RECORDS).open("a", encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from None

    def _clear(self, everything: bool) -> None:
        """Take away what a process left that was killed while it wrote, or everything of another run."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in (*FILES, SPENT):
            draft_of(self.path / name).unlink(missing_ok=True)
            if everything:
                (self.path / name).unlink(missing_ok=True)
        if everything:
            (self.path / NOW).unlink(missing_ok=True)
            checkpoints.remove_all(self.checkpoints)
            flush_folder(self.path)

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def checkpoint(self, state: ServerState[Any]) -> None:
        """Write down where the run can go on from, after the records that lead there."""
        with self._writing("rounds before this one are kept"):
            os.fsync(self._records.fileno())
        checkpoints.write(self.checkpoints, state, self._settings)

    def append(self, record: RoundRecord) -> None:
        """Write a round down and flush it."""
        with self._writing("rounds before this one are kept"):
            self._records.write(json.dumps(plain(record), allow_nan=False) + "\n")
            self._records.flush()

    def write_model(self, served: Served, origin: Mapping[str, Any]) -> None:
        """The global tensors and where they come from, whole or not at all."""
        with self._writing("the model is in the last checkpoint"):
            final.write(self.path / MODEL, served.tensors, origin, served.kept())

    def close(self) -> None:
        with suppress(OSError):  # whatever could not be written has been said
            self._records.close()

    @contextmanager
    def _writing(self, comfort: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunFolderError(f"cannot write to {str(self.path)!r}: {error.strerror}; {comfort}") from None


@contextmanager
def held(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Keep other processes from writing a run into this folder; an error if one does for so many seconds.

    The lock goes with the process, however that ends, and is not inherited by those that it starts. It does
    not keep threads of one process apart.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.resolve() / LOCK, thread_local=False, is_singleton=True)
        lock.acquire(timeout=patience, poll_interval=0.1)
    except Timeout:
        raise RunFolderError(
            f"another process writes a run into {str(path)!r}: wait until it has ended, or choose another "
            "folder"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise _unwritable(path, error) from None
    try:
        yield
    finally:
        lock.release()


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"cannot write to {str(path)!r}: {error.strerror}; choose a folder you may write to"
    )


def _keep_rounds(records: Path, rounds: int) -> None:
    """Cut the records off after so many rounds."""
    content = records.read_bytes() if records.exists() else b""
    lines = content.split(b"\n")[:-1][:rounds]
    if len(lines) < rounds or not all(lines):
        raise RunFolderError(
            f"{str(records)!r} has fewer rounds than the checkpoint; it was changed or damaged"
        )
    write_changed(records, b"".join(line + b"\n" for line in lines))


def _reopen(records: Path) -> None:
    """The last record is no longer the end of the run, if it was."""
    *lines, end, _ = records.read_text(encoding="utf-8").split("\n")
    last = json.loads(end)
    by_width: dict[str, Any] = {key: {} for key in ("scores_by_width", "accuracy_by_width") if key in last}
    again = json.dumps(last | by_width | {"stopped": None}, allow_nan=False)
    write_changed(records, "".join(f"{line}\n" for line in [*lines, again]).encode())


def write_end(path: Path, origins: Mapping[str, Any], served: Served, origin: Mapping[str, Any]) -> None:
    """What a finished run leaves besides its rounds, where its process was killed before it could."""
    try:
        _describe(path, origins)
        final.write(path / MODEL, served.tensors, origin, served.kept())
    except OSError as error:
        raise _unwritable(path, error) from None


def _describe(path: Path, origins: Mapping[str, Any] | None) -> None:
    """Write down what the run runs on."""
    text = json.dumps(environment() | ({PARTS: origins} if origins else {}), indent=2)
    write_changed(path / ENVIRONMENT, f"{text}\n".encode())


def refuse_taken(path: Path, overwrite: bool) -> None:
    """Raise an error if the folder already holds a run that is not to be replaced."""
    if not overwrite and path.is_dir() and any((path / name).exists() for name in FILES):
        raise RunFolderError(f"{str(path)!r} already holds a run; choose another folder or say --overwrite")


def read_origins(folder: Path) -> dict[str, Any]:
    """Where the parts of a run came from that are not built in; nothing if that cannot be read."""
    try:
        found = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    parts = found.get(PARTS) if isinstance(found, dict) else None
    return (
        {key: part for key, part in parts.items() if isinstance(part, dict)}
        if isinstance(parts, dict)
        else {}
    )


def environment() -> dict[str, Any]:
    """What the run ran on."""
    packages = ("torch", "numpy", "pydantic", "safetensors")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "heroes-fl": __version__,
        **{name: version_of(name) for name in packages},
    }


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
