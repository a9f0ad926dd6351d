"""The app of a node: who it is, a trained task, and that it has kept the final model."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from heroes.client.training import Trainer, one_thread
from heroes.data.examples import FederatedData
from heroes.errors import ConfigError, HeroesError, said
from heroes.transport.engines.flower.messages import (
    Shapes,
    content,
    digest_of,
    joined,
    task_of,
    tensors_of,
    values_of,
)
from heroes.transport.engines.flower.metering import on_network
from heroes.transport.engines.flower.weighing import node_memory
from heroes.transport.opening import Prepare
from heroes.transport.wire import Frame, Parcels, update_frame
from heroes.transport.workers.keeping import write_model


def client_app(prepare: Prepare) -> ClientApp:
    """The app of a node.

    `prepare` makes what a client trains with, from the server's configuration as text and the client's
    number; it is called for every message.
    """
    app = ClientApp()
    app.query()(partial(_introduce, prepare))
    app.query("keep")(partial(_keep, prepare))
    app.train()(partial(_train, prepare))
    return app


def _shapes(trainer: Trainer, width: int) -> Shapes:
    """Shapes of the tensors that a model of this width has under the configured strategy."""
    family = trainer.family
    return (
        family.weight_shapes(width) if trainer.settings.train_in == "dense" else family.tensor_shapes(width)
    )


def _settled(prepare: Prepare, context: Context, text: str) -> tuple[Trainer, FederatedData]:
    """What this node trains with under a configuration, which stays with the node."""
    client = int(context.node_config["partition-id"])
    trainer, data = prepare(text, client)
    check_number(client, len(data.shares))
    context.state["heroes"] = ConfigRecord({"config": text})
    return trainer, data


def _config(context: Context) -> str:
    """The configuration that this node was told last; empty if it has begun anew."""
    return str(context.state.config_records["heroes"]["config"]) if "heroes" in context.state else ""


def check_number(client: int, clients: int) -> None:
    """Raise an error unless the node's number is that of a client."""
    if not 0 <= client < clients:
        raise ConfigError(f"partition-id is {client}, but there are {clients} clients, from 0 on")


def _introduce(prepare: Prepare, message: Message, context: Context) -> Message:
    """Who this node is."""
    node = context.node_config
    try:
        _settled(prepare, context, str(values_of(message.content)["config"]))
        answer: dict[str, Any] = {
            "client": int(node["partition-id"]),
            "keeps": "model-out" in node,
            "width": int(node.get("width", 0)),
            "name": str(node.get("name", "")),
            **on_network(),
        }
    except HeroesError as error:
        answer = {"error": str(error)}
    except Exception as error:  # the data can be missing in any way
        answer = {"error": said(error)}
    return Message(content(answer), reply_to=message)


def _train(prepare: Prepare, message: Message, context: Context) -> Message:
    """A trained task, in the configured number of bits, and how long it took.

    A node that does not know the task's configuration asks for it.
    """
    try:
        values = values_of(message.content)
        text = str(values.get("config", _config(context)))
        if digest_of(text) != values["digest"]:
            return Message(content({"stranger": True}), reply_to=message)
        trainer, data = _settled(prepare, context, text)
        shapes = _shapes(trainer, values["width"])
        task = task_of(values, tensors_of(message.content, "tensors", shapes, values["bits"]))
        slowness = float(context.node_config.get("slowness", 1.0))  # it may play a slower one
        if task.assignment.until is not None:
            own = replace(task.assignment, until=task.assignment.until / max(1.0, slowness))
            task = replace(task, assignment=own)
        with one_thread() if values.get("one_thread") else nullcontext():
            started, start = age(), time.perf_counter()
            update = trainer.trained(task, data.train, data.shares[task.assignment.client])
            time.sleep(max(0.0, slowness - 1.0) * (time.perf_counter() - start))
            seconds = time.perf_counter() - start
            packed, _ = trainer.packed(task, update.tensors)
    except Exception as error:  # the user's model and transform can fail in any way
        return Message(content({"error": said(error)}), reply_to=message)
    groups = {"tensors": joined(packed or update.tensors)}
    if update.extras:
        groups["extras"] = Parcels().wrap(Frame({}, update.extras))
    bits, share = trainer.fineness(task.assignment) if packed else (32, 1.0)
    said_besides = {"trained": round(seconds, 4), "bits": bits}
    said_besides |= {"share": share} if share < 1 else {}
    said_besides |= {} if started is None else {"started": round(started, 4)}
    said_besides |= on_network() | ({} if values.get("one_thread") else node_memory())
    return Message(content({**update_frame(update).header, **said_besides}, **groups), reply_to=message)


def age() -> float | None:
    """How long ago this process began: Flower starts one for every message. None if the system says nothing.

    It is the time that Python, Flower, torch, the model and the data took to be there.
    """
    try:
        began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]  # in ticks since the boot
        now = Path("/proc/uptime").read_text().split()[0]
        return max(0.0, float(now) - int(began) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def _keep(prepare: Prepare, message: Message, context: Context) -> Message:
    """Write the final model where this node wants it."""
    try:
        values = values_of(message.content)
        trainer, _ = _settled(prepare, context, str(values["config"]))
        path, width = Path(str(context.node_config["model-out"])), int(values["width"])
        shapes = {**_shapes(trainer, width), **trainer.family.kept_shapes(width)}
        write_model(trainer.family, width, tensors_of(message.content, "tensors", shapes), path)
    except Exception as error:  # whatever it is, the server should hear of it
        return Message(content({"error": said(error)}), reply_to=message)
    return Message(content({"kept": True}), reply_to=message)
