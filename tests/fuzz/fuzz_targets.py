"""Readers of files as functions of bytes, for hypothesis and for atheris (tools/fuzz.py): what is raised is a
HeroesError.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from heroes.data import DataOptions, cifar_pickle, femnist, idx, table, text
from heroes.errors import HeroesError
from heroes.fleet.devices import Fleet, read_fleet
from heroes.messages import ServerState
from heroes.runs import checkpoints
from heroes.settings.config import parse, to_toml
from heroes.settings.recipes import EXPERIMENTS
from heroes.settings.toml_files import load
from heroes.settings.toml_text import loads
from heroes.strategies.heroes import HeroesMemory

BEGIN = ServerState(0, {"b": torch.zeros(2, 3), "a": torch.zeros(())}, HeroesMemory((0, 0, 0, 0)))
_MEMORY = Path("/dev/shm")  # where there is one, files need no disk
_FOLDER = tempfile.TemporaryDirectory(prefix="heroes-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None)


def file_of(content: bytes, name: str = "input") -> Path:
    path = Path(_FOLDER.name) / name
    path.write_bytes(content)
    return path


def idx_file(content: bytes) -> None:
    for dimensions in (1, 3):
        with suppress(HeroesError):
            array = idx.read(file_of(content), dimensions)
            assert array.ndim == dimensions
            assert array.nbytes <= 1100 * len(content)


def cifar_batch(content: bytes) -> None:
    with suppress(ValueError):
        tree = cifar_pickle.read(memoryview(content))
        data = tree.get(b"data")
        if isinstance(data, cifar_pickle.ArrayRecord):
            assert data.array().dtype == np.uint8


def table_file(content: bytes) -> None:
    """A table is read or refused, and so is what is learnt from it, as a table and as texts."""
    for name in ("a.csv", "a.jsonl"):
        path = file_of(content, name)
        for kind in ("classes", "numbers"):
            options = DataOptions(source=path, target="y", text="x", targets=kind, test_share=0.5)
            for loaded in (table.load, text.load):
                with suppress(HeroesError):
                    data = loaded(options)
                    assert min(len(data.train), len(data.test)) > 0


def leaf_file(content: bytes) -> None:
    """LEAF's JSON."""
    with suppress(HeroesError):
        for writer in femnist._read(file_of(content)):
            assert writer.images.shape == (len(writer.labels), 784)


def config_file(content: bytes) -> None:
    """What is accepted can be written down and read again."""
    for strategy in (None, "fedavg"):
        with suppress(HeroesError):
            config = load(file_of(content), EXPERIMENTS, strategy)
            assert parse(loads(to_toml(config))) == config


def fleet_file(content: bytes) -> None:
    """What is accepted makes a fleet whose speeds are all numbers above zero."""
    with suppress(HeroesError):
        fleet = Fleet(read_fleet(file_of(content)), 7, 0)
        cohort = fleet.status(np.arange(7), 1)
        for speeds in (cohort.speed, cohort.upload, cohort.download):
            assert np.isfinite(speeds).all()
            assert (speeds > 0).all()


def checkpoint_file(content: bytes) -> None:
    with suppress(HeroesError):
        state = checkpoints.read(file_of(content, "round-0000007.safetensors"), BEGIN)
        assert {name: t.shape for name, t in state.tensors.items()} == {
            name: t.shape for name, t in BEGIN.tensors.items()
        }


TARGETS: dict[str, Callable[[bytes], None]] = {
    "idx": idx_file,
    "table": table_file,
    "leaf": leaf_file,
    "cifar_pickle": cifar_batch,
    "config": config_file,
    "fleet": fleet_file,
    "checkpoint": checkpoint_file,
}
