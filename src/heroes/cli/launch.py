"""Whether mpiexec started this process, and as which of how many. Each MPI says so in its own variables."""

from __future__ import annotations

import os

from heroes.errors import ConfigError

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def rank() -> int:
    """The number of this process. Those after 0 do what 0 says, and say nothing themselves."""
    return _first(_RANK, 0)


def size() -> int:
    """How many processes were started together."""
    return _first(_SIZE, 1) if any(os.environ.get(name) for name in _RANK) else 1


def _first(names: tuple[str, ...], default: int) -> int:
    """The first of these variables that says anything."""
    for name in names:
        if text := os.environ.get(name):
            if not (text.isascii() and text.isdigit()):
                raise ConfigError(
                    f"the variable {name} is {text!r}; mpiexec sets it to a number, and outside of MPI it is "
                    "not set"
                )
            return int(text)
    return default


def refuse_many(engine: str) -> None:
    """Raise an error if several processes were started, which would all do the same run."""
    if size() > 1 and engine != "mpi":
        raise ConfigError(
            f"{size()} processes were started together but engine.name is {engine!r}; say --engine mpi, or "
            "start one"
        )
