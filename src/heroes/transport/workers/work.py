"""A worker process: it trains or tests what it is sent, one after the other, on one thread.

A second thread receives, so that the next task is there when one is done, and so that the worker ends with
its parent: when the parent is gone, however it went, its end of the channel closes.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import torch

from heroes.client.evaluation import reason, tally
from heroes.client.training import Trainer
from heroes.errors import ExchangeError, said
from heroes.messages import Lost
from heroes.transport.wire import Channel, Frame, Shelf, read_task, update_frame
from heroes.transport.workers.memory import keep_memory
from heroes.transport.workers.setup import Setup, read


def work(
    link: socket.socket,
    source: Setup | Path,
    foreign: Sequence[socket.socket],
    device: torch.device,
    shelf: Shelf | None = None,
) -> None:
    """Serve the parent until it is gone, training on the device.

    `source` is the setup or the folder it is in; `foreign` are other workers' sockets, which a
    fork copied along; answers are laid on the `shelf`, if there is one.
    """
    torch.set_num_threads(1)  # first of all: a fork has no copy of the parent's threads
    keep_memory()
    gc.freeze()  # what the parent left for its garbage collector is the parent's business
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in foreign:
        other.close()  # else a sibling would not notice that the parent is gone
    channel = Channel(link, shelf=shelf)
    inbox: SimpleQueue[Frame] = SimpleQueue()
    Thread(
        target=_listen, args=(channel, inbox, source if isinstance(source, Path) else None), daemon=True
    ).start()
    try:
        setup = replace(read(source) if isinstance(source, Path) else source, device=device)
        if device.type == "cuda":
            torch.cuda.set_device(device)  # what a model of the user's calls "cuda" is this one too
        trainer = Trainer(setup.family, setup.settings, setup.device)
    except Exception as error:  # the user's module can fail in any way when it is imported
        channel.send(Frame({"broken": said(error)}, {}))
        os._exit(1)
    channel.send(Frame({"ready": True}, {}))
    while True:
        channel.send(answer(setup, trainer, inbox.get()), laying=True)


def _listen(channel: Channel, inbox: SimpleQueue[Frame], folder: Path | None) -> None:
    try:
        while True:
            inbox.put(channel.receive())
    except (EOFError, OSError, ExchangeError):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)  # the parent cannot do it any more
        os._exit(0)


def answer(setup: Setup, trainer: Trainer, frame: Frame) -> Frame:
    """What comes of a task or of a part of a test; an error inside is an answer too."""
    if "chunks" in frame.header:
        return _scored(setup, trainer, frame)
    task = read_task(frame)
    update = trainer.answer(task, setup.data.train, setup.data.shares[task.assignment.client])
    return Frame({"error": update.reason}, {}) if isinstance(update, Lost) else update_frame(update)


def _scored(setup: Setup, trainer: Trainer, frame: Frame) -> Frame:
    try:
        model = trainer.loaded(frame.common or {}, frame.header["width"])
        examples = setup.data.tested(frame.header["sample"])
        tallies = {
            chunk: tally(model, examples, chunk, setup.batch_size, setup.device, setup.settings.objective)
            for chunk in frame.header["chunks"]
        }
    except Exception as error:  # the user's model, loss and metrics can fail in any way
        return Frame({"error": reason(error)}, {})
    gathered = {f"{chunk}:{name}": t for chunk, one in tallies.items() for name, t in one.gathered.items()}
    return Frame({"tallies": [one.statistics for one in tallies.values()]}, gathered)
