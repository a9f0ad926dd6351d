"""The folder a run writes as it goes: config.toml, records.jsonl, model.safetensors, environment.json."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from heroes.errors import RunFolderError
from heroes.messages import RoundRecord, plain

FILES = ("config.toml", "records.jsonl", "model.safetensors", "environment.json")


class RunFolder:
    """Opened at the start of a run; every round is on disk before the next begins."""

    def __init__(self, path: Path, config_toml: str, *, overwrite: bool = False) -> None:
        self.path = path
        refuse_taken(path, overwrite)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                (path / name).unlink(missing_ok=True)
            (path / "config.toml").write_text(config_toml, encoding="utf-8")
            (path / "environment.json").write_text(json.dumps(environment(), indent=2) + "\n", encoding="utf-8")
            self._records = (path / "records.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"cannot write to {str(path)!r}: {error.strerror}; choose a folder you may write to") from None

    def append(self, record: RoundRecord) -> None:
        """Write a round down and flush it."""
        try:
            self._records.write(json.dumps(plain(record), allow_nan=False) + "\n")
            self._records.flush()
        except OSError as error:
            raise RunFolderError(
                f"cannot write to {str(self.path)!r}: {error.strerror}; rounds before this one are kept"
            ) from None

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """The global tensors, whole or not at all."""
        final, draft = self.path / "model.safetensors", self.path / "model.safetensors.part"
        try:
            draft.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()}))
            os.replace(draft, final)
        except OSError as error:
            raise RunFolderError(f"cannot write {str(final)!r}: {error.strerror}") from None

    def close(self) -> None:
        self._records.close()


def refuse_taken(path: Path, overwrite: bool) -> None:
    """An error if the folder already holds a run that is not to be replaced."""
    if not overwrite and path.is_dir() and any((path / name).exists() for name in FILES):
        raise RunFolderError(f"{str(path)!r} already holds a run; choose another folder or say --overwrite")


def environment() -> dict[str, str | int | None]:
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
