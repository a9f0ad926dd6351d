"""A node that imports once. Flower starts a process for every message, which imports Flower and torch anew.

Here one process imports them, then forks: the SuperNode first, and from then on a process for every task that
the SuperNode has, as Flower's SuperExec would start it. What was imported is shared by all of them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.runtime.run_clientapp import run_clientapp

from heroes.transport.engines.flower.metering import METERS, Meter

_LOOK_SECONDS = "0.1"  # between two looks for a task
_MOVES = ("PullObject", "PushObject", "PushMessages", "ConfirmMessageReceived")  # what moves a message


def serve(arguments: Sequence[str]) -> int:
    """Run a SuperNode, with arguments of flower-supernode, and its tasks; its exit code when it has ended."""
    address = _runtime_address(arguments)
    METERS.append(Meter())
    gc.freeze()  # a collection in one process would copy what all share
    supernode = forked(partial(_supernode, arguments))
    signal.signal(signal.SIGTERM, _leave)
    try:
        return _run_tasks(address, supernode)
    finally:
        end(supernode)


def _runtime_address(arguments: Sequence[str]) -> str:
    """Where the SuperNode offers tasks to this machine."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="9094")
    found, _ = parser.parse_known_args(arguments)
    return f"{f'[{found.host}]' if ':' in found.host else found.host}:{found.port}"


def _supernode(arguments: Sequence[str]) -> None:
    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    for name in _MOVES:
        setattr(FleetHttpClient, name, METERS[-1].counting(getattr(FleetHttpClient, name)))
    flower_supernode()


def _run_tasks(address: str, supernode: int) -> int:
    """Begin every task that comes, until the SuperNode has ended."""
    named = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    client = RuntimeHttpClient.from_server_address(address, True, None, [named])
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    pause = float(os.environ.get("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", _LOOK_SECONDS))
    tasks: list[int] = []
    while (code := ended(supernode)) is None:
        with suppress(httpx.HTTPError):  # it does not listen yet, or no longer
            found = client.AcquireTask(wanted)
            if found.HasField("task") and found.token:
                task = partial(run_clientapp, address, found.token, insecure=True, parent_pid=os.getpid())
                tasks.append(forked(task))
        tasks = [number for number in tasks if ended(number) is None]
        time.sleep(pause)
    return code


def forked(work: Callable[[], None]) -> int:
    """The id of a process that does this work and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    if number := os.fork():
        return number
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(number: int) -> int | None:
    """The exit code of a process that was forked here; None while it lives."""
    found, status = os.waitpid(number, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def end(number: int, patience: float = 10.0) -> None:
    """Ask a process to end, so that a SuperNode says goodbye; after so many seconds make it."""
    deadline = time.monotonic() + patience
    with suppress(ProcessLookupError, ChildProcessError):  # it has ended, and was noticed, before
        os.kill(number, signal.SIGTERM)
        while ended(number) is None:
            if time.monotonic() > deadline:
                os.kill(number, signal.SIGKILL)
            time.sleep(0.05)


def _leave(number: int, frame: object) -> NoReturn:
    sys.exit(0)
