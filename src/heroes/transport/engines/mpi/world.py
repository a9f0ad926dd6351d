"""MPI in this process: it has one world, which starts where it is first needed."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from heroes.errors import ConfigError

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


@dataclass
class State:
    """Whether the world is whole: MPI cannot end well without all ranks."""

    broken: bool = False  # some rank did not leave


state = State()


@cache
def world() -> Comm:
    """All ranks. MPI starts here, when first needed, and ends with the process if all ranks end."""
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # a rank that is stuck would let the others wait for ever
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ConfigError(
            f"engine.name is 'mpi' but there is no MPI ({reason}): pip install 'heroes-fl[mpi]'"
        ) from None
    atexit.register(lambda: None if state.broken or MPI.Is_finalized() else MPI.Finalize())
    sys.excepthook = _failing(sys.excepthook)
    return MPI.COMM_WORLD


def _failing(hook: Callable[..., object]) -> Callable[..., object]:
    """A process that ends with a traceback does not wait for the others: mpiexec ends them."""

    def fail(*error: Any) -> None:
        state.broken = True
        hook(*error)

    return fail


def rank() -> int:
    """The number of this process; 0 is the server."""
    return world().rank
