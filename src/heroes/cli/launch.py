"""Whether mpiexec started this process, and as which of how many. Each MPI says so in its own variables."""

from __future__ import annotations

import os

from heroes.errors import ConfigError

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def rank() -> int:
    """The number of this process. All but process 0 do what it says, and print nothing."""
    return next((int(os.environ[name]) for name in _RANK if name in os.environ), 0)


def size() -> int:
    """How many processes were started together."""
    known = any(name in os.environ for name in _RANK)
    return next((int(os.environ[name]) for name in _SIZE if name in os.environ), 1) if known else 1


def refuse_many(engine: str) -> None:
    """Raise an error if several processes were started, which would all do the same run."""
    if size() > 1 and engine != "mpi":
        raise ConfigError(
            f"{size()} processes were started together but engine.name is {engine!r}; say --engine mpi, or "
            "start one"
        )
