"""Processes that make runs, one after the other each: two trials at once, each in one thread.

A worker keeps no state but what is in its run folder. Asked to stop, it ends after the round it is in; when
the process that started it is gone, at once. Either way the run can be gone on with.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TypeVar

from heroes.errors import HeroesError, TrainingError, said
from heroes.messages import RoundRecord
from heroes.runs.planned import Planned
from heroes.settings import toml_text
from heroes.settings.config import parse, to_toml

T = TypeVar("T")
UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h: nothing that the settings of a run can be blamed for


@dataclass(frozen=True)
class Ended:
    """How a run ended: what it took here, and why it failed, with the exit code, if it did."""

    wall_seconds: float
    core_seconds: float
    """of the processor: neither other processes nor a pause count"""
    failed: str | None = None
    exit_code: int = 0


class Workers:
    """Some processes; open them by `workers(jobs)`."""

    def __init__(self, links: dict[Connection, BaseProcess], stop: Event) -> None:
        self._links = links
        self._stop = stop

    def run(self, todo: Sequence[tuple[Planned, T]]) -> Iterator[tuple[T, Ended]]:
        """Make all these runs, or go on with them; yields what came with each, as soon as it has ended."""
        waiting, busy = deque(todo), dict[Connection, tuple[Planned, T]]()
        while waiting or busy:
            for link in self._links:
                if waiting and link not in busy:
                    busy[link] = waiting.popleft()
                    planned = busy[link][0]
                    link.send((to_toml(planned.config), str(planned.folder), planned.begun))
            answered = wait(list(busy))
            for link in [each for each in busy if each in answered]:
                planned, payload = busy.pop(link)
                yield payload, self._heard(link, planned)

    def _heard(self, link: Connection, planned: Planned) -> Ended:
        try:
            ended: Ended = link.recv()
        except (EOFError, OSError):
            self._links[link].join(5)
            code = self._links[link].exitcode
            raise TrainingError(
                f"the process that ran {planned.name} ended with code {code}; say the same again to go on"
            ) from None
        return ended

    def end(self) -> None:
        """Let the rounds that are under way end, then the processes; a Ctrl-C ends them at once."""
        self._stop.set()
        for link in self._links:
            link.close()
        try:
            for process in self._links.values():
                process.join()
        except KeyboardInterrupt:
            for process in self._links.values():
                process.kill()
            raise


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """Processes for so many runs at once; at the end they finish the round they are in."""
    context = get_context("spawn")
    stop, links = context.Event(), dict[Connection, BaseProcess]()
    for _ in range(jobs):
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, stop))
        process.start()
        there.close()
        links[here] = process
    opened = Workers(links, stop)
    try:
        yield opened
    finally:
        opened.end()


def _serve(link: Connection, stop: Event) -> None:
    """What a worker does; Ctrl-C is for whoever started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    while True:
        try:
            text, folder, begun = link.recv()
            link.send(_made(text, Path(folder), begun, stop))
        except (EOFError, OSError):
            return


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # files are drafted and renamed: nothing is left half written


def _made(text: str, folder: Path, begun: bool, stop: Event) -> Ended:
    """Make a run in this process, or go on with the one in the folder."""
    import torch

    from heroes.assemble import NOTHING, with_file
    from heroes.runs.running import resume, run
    from heroes.transport.workers.memory import keep_memory

    def leave_if_asked(record: RoundRecord | None = None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt

    torch.set_num_threads(1)
    keep_memory()
    wall, core = time.monotonic(), time.process_time()

    def ended(failed: str | None = None, exit_code: int = 0) -> Ended:
        return Ended(time.monotonic() - wall, time.process_time() - core, failed, exit_code)

    try:
        leave_if_asked()
        if begun:
            resume(folder, on_round=leave_if_asked)
        else:
            tree = toml_text.loads(text)
            config = parse(tree, with_file(NOTHING, tree).strategy_class)
            run(config, out=folder, overwrite=True, on_round=leave_if_asked)
    except HeroesError as error:
        return ended(str(error), error.exit_code)
    except KeyboardInterrupt:
        return ended("interrupted", 130)
    except Exception as error:  # one run's failure must not end the others
        return ended(said(error), UNEXPECTED)
    return ended()
