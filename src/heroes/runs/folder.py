"""The folder that a run writes as it goes: configuration, records, checkpoints, model, environment."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from safetensors.torch import save
from torch import Tensor

from heroes.errors import RunFolderError
from heroes.messages import RoundRecord, ServerState, plain
from heroes.runs import checkpoints

if sys.platform != "win32":
    import fcntl

CHECKPOINTS = "checkpoints"
LOCK = ".lock"
PARTS = "parts"  # in environment.json: what is not built in, and where it came from
FILES = ("config.toml", "records.jsonl", "model.safetensors", "environment.json")


class RunFolder:
    """Opened at the start of a run; every round is written before the next begins.

    `origins` says where parts of the run came from that are not built in. `after` goes on with the run in the
    folder: its first so many rounds are kept, whatever came later is to be done again.
    """

    def __init__(
        self,
        path: Path,
        config_toml: str,
        origins: Mapping[str, Any] | None = None,
        *,
        overwrite: bool = False,
        after: int | None = None,
    ) -> None:
        self.path = path
        if after is None:
            refuse_taken(path, overwrite)
        try:
            if after is None:
                path.mkdir(parents=True, exist_ok=True)
                for name in FILES:
                    (path / name).unlink(missing_ok=True)
                checkpoints.remove_all(self.checkpoints)
            else:
                _keep_rounds(path / "records.jsonl", after)
            (path / "config.toml").write_text(config_toml, encoding="utf-8")
            text = json.dumps(environment() | ({PARTS: origins} if origins else {}), indent=2)
            (path / "environment.json").write_text(f"{text}\n", encoding="utf-8")
            self._records = (path / "records.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from None

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def checkpoint(self, state: ServerState[Any]) -> None:
        """Write down where the run can go on from, after the records that lead there."""
        with self._writing("rounds before this one are kept"):
            os.fsync(self._records.fileno())
        checkpoints.write(self.checkpoints, state)

    def append(self, record: RoundRecord) -> None:
        """Write a round down and flush it."""
        with self._writing("rounds before this one are kept"):
            self._records.write(json.dumps(plain(record), allow_nan=False) + "\n")
            self._records.flush()

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """The global tensors, whole or not at all."""
        final, draft = self.path / "model.safetensors", self.path / "model.safetensors.part"
        with self._writing("the model is in the last checkpoint"):
            draft.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()}))
            os.replace(draft, final)

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
    not keep threads of one process apart, and is gone if the process opens and closes the lock file in
    another way.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = (path / LOCK).open("a+b")
    except OSError as error:
        raise _unwritable(path, error) from None
    with file:
        deadline = time.monotonic() + patience
        while not _taken(file):
            if time.monotonic() > deadline:
                raise RunFolderError(
                    f"another process writes a run into {str(path)!r}: wait until it has ended, or choose "
                    "another folder"
                )
            time.sleep(0.1)
        yield


def _taken(file: IO[bytes]) -> bool:
    """Lock a file unless somebody else has; on systems without locks, do nothing."""
    if sys.platform != "win32":
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # some network file systems
            return True
    return True


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"cannot write to {str(path)!r}: {error.strerror}; choose a folder you may write to"
    )


def _keep_rounds(records: Path, rounds: int) -> None:
    """Cut the records off after so many rounds, the last of which is no longer the end of the run."""
    lines = records.read_text(encoding="utf-8").split("\n")[:rounds]
    if len(lines) < rounds or not all(lines):
        raise RunFolderError(
            f"{str(records)!r} has fewer rounds than the checkpoint; it was changed or damaged"
        )
    if lines:
        last = json.loads(lines[-1])
        by_width: dict[str, Any] = {
            key: {} for key in ("scores_by_width", "accuracy_by_width") if key in last
        }
        lines[-1] = json.dumps(last | by_width | {"stopped": None}, allow_nan=False)
    draft = records.with_suffix(".part")
    draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(draft, records)


def refuse_taken(path: Path, overwrite: bool) -> None:
    """Raise an error if the folder already holds a run that is not to be replaced."""
    if not overwrite and path.is_dir() and any((path / name).exists() for name in FILES):
        raise RunFolderError(f"{str(path)!r} already holds a run; choose another folder or say --overwrite")


def read_origins(folder: Path) -> dict[str, Any]:
    """Where the parts of a run came from that are not built in; nothing if that cannot be read."""
    try:
        found = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
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
    packages = ("heroes-fl", "torch", "numpy", "pydantic", "safetensors", "scikit-learn")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        **{name: _version(name) for name in packages},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
