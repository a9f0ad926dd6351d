"""MPI in this process, which has one world, started when it is first needed."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from heroes.errors import ConfigError
from heroes.transport.engines.mpi.launcher import end_launcher

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


@dataclass
class State:
    """Whether all ranks are still there: without them MPI cannot end well."""

    broken: bool = False  # some rank did not leave
    lost: bool = False  # some rank cannot be reached


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
    atexit.register(_leave)
    sys.excepthook = _failing(sys.excepthook)
    return MPI.COMM_WORLD


def _leave() -> None:
    from mpi4py import MPI

    if state.lost:
        end_launcher()
    elif not (state.broken or MPI.Is_finalized()):
        MPI.Finalize()


def _failing(hook: Callable[..., object]) -> Callable[..., object]:
    """End at once after a traceback, without waiting for the others, which mpiexec ends."""

    def fail(*error: Any) -> None:
        state.broken = True
        hook(*error)

    return fail


def rank() -> int:
    """The number of this process; 0 is the server."""
    return world().rank
