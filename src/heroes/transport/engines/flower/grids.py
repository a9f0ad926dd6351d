"""Where the grid comes from: Flower hands one to a ServerApp, or a simulation is started here."""

from __future__ import annotations

import gc
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from heroes.errors import TrainingError, said
from heroes.transport.engines.flower.client import client_app
from heroes.transport.opening import Prepare

_START_SECONDS = 300.0  # for Ray to start, on a busy machine
_STOP_SECONDS = 30.0  # for Ray to stop
_CALM_SECONDS = 3.0  # for Flower to stop by itself when nobody wants the rest
_ABANDON_SECONDS = 300.0  # for it to stop on a busy machine once its clients were ended
_LOOK_SECONDS = 0.25  # between two looks whether it has


@dataclass(frozen=True)
class Link:
    """A grid, and a check that what is behind it still runs."""

    grid: Grid
    check: Callable[[], None] = lambda: None


@contextmanager
def simulated(clients: int, prepare: Prepare, workers: int) -> Iterator[Link]:
    """The grid of a simulation by Flower with so many nodes, in so many processes of Ray."""
    with (
        _silence(),
        tempfile.TemporaryDirectory(prefix="heroes-ray-", ignore_cleanup_errors=True) as folder,
    ):
        simulation = _Simulation(clients, prepare, workers, folder)
        try:
            yield Link(simulation.grid(), simulation.check)
        except BaseException:
            simulation.abandon()
            raise
        simulation.stop()


class _Simulation:
    """Flower's simulation in a thread, whose ServerApp does nothing but hand out its grid."""

    def __init__(self, clients: int, prepare: Prepare, workers: int, folder: str) -> None:
        self._grids: SimpleQueue[Grid] = SimpleQueue()
        self._over = Event()
        self._error: BaseException | None = None
        arguments = (clients, client_app(prepare), workers, folder)
        self._thread = Thread(target=self._run, args=arguments, name="heroes-flower", daemon=True)
        self._thread.start()

    def grid(self) -> Grid:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            with suppress(Empty):
                return self._grids.get(timeout=_LOOK_SECONDS)
        raise TrainingError(f"Flower's simulation did not start within {_START_SECONDS:g} seconds")

    def check(self) -> None:
        """TrainingError if the simulation is over."""
        if not self._thread.is_alive():
            reason = "it ended" if self._error is None else said(_root(self._error))
            raise TrainingError(f"Flower's simulation cannot go on: {reason}")

    def stop(self) -> None:
        self._over.set()
        self._thread.join(_STOP_SECONDS)

    def abandon(self) -> None:
        """Stop, and do not wait for clients that train, or whose processes Ray still starts.

        Flower waits for their answers before it stops Ray, on a busy machine for minutes.
        """
        self._over.set()
        deadline = time.monotonic() + _ABANDON_SECONDS
        self._thread.join(_CALM_SECONDS)
        while self._thread.is_alive() and time.monotonic() < deadline:
            _end_clients()
            self._thread.join(_LOOK_SECONDS)

    def _run(self, clients: int, app: ClientApp, workers: int, folder: str) -> None:
        server = ServerApp()
        server.main()(self._lead)
        arguments: dict[str, Any] = {
            "num_cpus": workers,
            "logging_level": logging.CRITICAL,
            "log_to_driver": False,
        }
        if len(folder) < 40:  # the names of Ray's sockets must not get too long
            arguments["_temp_dir"] = folder
        resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
        try:
            from flwr.simulation import run_simulation

            run_simulation(
                server, app, clients, backend_config={"client_resources": resources, "init_args": arguments}
            )
        except BaseException as error:  # Flower ends the process with SystemExit where Ray is missing
            self._error = error

    def _lead(self, grid: Grid, context: Context) -> None:
        self._grids.put(grid)
        self._over.wait()


def _end_clients() -> None:
    """Kill the processes of Ray that Flower waits for, also those that are still to be started.

    Flower does not hand them out. It does the rest of the stopping itself: a process in which one thread asks
    Ray for something after another shut it down is ended by Ray, with an exit code of its own.
    """
    import ray
    from flwr.simulation.ray_transport.ray_actor import BasicActorPool

    for pool in [each for each in gc.get_objects() if type(each) is BasicActorPool]:
        for actor in list(vars(pool)["_future_to_actor"].values()):
            with suppress(Exception):  # it has just answered
                ray.kill(actor)


def _root(error: BaseException) -> Exception:
    while error.__cause__ is not None:
        error = error.__cause__
    return error if isinstance(error, Exception) else RuntimeError(f"it left with {error!r}")


@contextmanager
def _silence() -> Iterator[None]:
    """Silence Flower's own logging: what matters becomes an error of ours."""
    logger = logging.getLogger("flwr")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
