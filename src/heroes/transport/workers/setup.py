"""What a worker process needs to train and to test, and how it gets there.

A forked process has it already: its memory is the parent's until one of them writes. For a spawned process it
is written to a folder, large tensors and arrays as files that every worker maps into its memory: one copy for
all, outside of /dev/shm.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heroes.client.training import LocalSettings
from heroes.data.examples import FederatedData
from heroes.errors import ConfigError
from heroes.models.family import Family
from heroes.transport.wire import raw

_SMALL = 4096  # bytes; what is smaller is not worth a file


@dataclass(frozen=True)
class Setup:
    """The same for every worker, from the first round to the last."""

    family: Family
    settings: LocalSettings
    device: torch.device
    data: FederatedData
    batch_size: int


def check_importable(setup: Setup) -> None:
    """A spawned process must be able to import the parts of the setup by their names."""
    try:
        _Writer(io.BytesIO(), None).dump(setup)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            "the model, a loss, a metric or the data's transform cannot be handed to a spawned process "
            f"({error}): it must be importable, that is a function or class at the top level of a module; or "
            "use engine.start = 'fork' or engine.name = 'in_process'"
        ) from error


def write(setup: Setup, folder: Path) -> None:
    """Put the setup into an empty folder."""
    with (folder / "setup").open("wb") as file:
        _Writer(file, folder).dump(setup)


def read(folder: Path) -> Setup:
    """The setup from its folder; large tensors are mapped, not read."""
    with (folder / "setup").open("rb") as file:
        setup: Setup = _Reader(file, folder).load()
    return setup


class _Writer(pickle.Pickler):
    """Puts large tensors and arrays into files of their own; without a folder it only tries."""

    def __init__(self, file: IO[bytes], folder: Path | None) -> None:
        super().__init__(file)
        self.folder = folder
        self.written: dict[
            int, tuple[str, object]
        ] = {}  # by identity; the object is kept so that its id stays its own

    def persistent_id(self, value: Any) -> Any:
        if type(value) is Tensor and value.numel() and value.untyped_storage().nbytes() >= _SMALL:
            return self._file(value), value.dtype, tuple(value.shape)
        if isinstance(value, np.ndarray) and value.nbytes >= _SMALL and not value.dtype.hasobject:
            return self._file(value), value.dtype, value.shape
        return None

    def _file(self, value: Tensor | npt.NDArray[Any]) -> str:
        if id(value) not in self.written:
            name = f"tensor-{len(self.written)}"
            self.written[id(value)] = name, value
            if self.folder is not None:
                array = value if isinstance(value, np.ndarray) else raw(value.detach().cpu())
                array.tofile(self.folder / name)
        return self.written[id(value)][0]


class _Reader(pickle.Unpickler):
    def __init__(self, file: IO[bytes], folder: Path) -> None:
        super().__init__(file)
        self.folder = folder

    def persistent_load(self, pid: Any) -> Any:
        name, dtype, shape = pid
        # "c": pages are read when they are needed and shared by all; nobody writes
        if isinstance(dtype, torch.dtype):
            return torch.from_numpy(np.memmap(self.folder / name, np.uint8, "c")).view(dtype).reshape(shape)
        return np.memmap(self.folder / name, dtype, "c", shape=shape)
