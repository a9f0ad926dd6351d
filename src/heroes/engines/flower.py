"""Clients on nodes of Flower: in its simulation on this machine, or wherever a SuperLink has nodes.

The server side is an engine on Flower's `Grid`, the client side an app with three answers: who it is, a trained task, and that it
has kept the final model. A message is a `RecordDict`: plain values as one JSON text in a `ConfigRecord`, tensors in an
`ArrayRecord`, in as many bits as the configuration says. Nothing is pickled by heroes.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heroes.data.datasets import Progress
from heroes.data.examples import FederatedData
from heroes.errors import ConfigError, ExchangeError, HeroesError, TrainingError
from heroes.exchange import Packed, Upload, pack_tensors, tensors_bytes, unpack_tensors, unpack_update
from heroes.fleet.faults import Mask
from heroes.fleet.wall import MeasuredFleet, WallClock
from heroes.local_training import Trainer, one_thread, said
from heroes.messages import Assignment, Lost, Selection, Task, Tensors, Update
from heroes.wire import Frame, raw, read_update, update_frame
from heroes.workers.keeping import write_model
from heroes.workers.scoring import Scoring
from heroes.workers.setup import Setup

for _name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(_name, "0")  # before the import: nobody is told that this runs
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    raise ConfigError(f"Flower is not there ({error}): pip install 'heroes-fl[flower]'") from None

_SHORT, _LONG = 0.01, 0.25  # seconds between two looks for messages
_START_SECONDS = 120.0  # for Ray to start
_STOP_SECONDS = 30.0  # for Ray to stop
_QUIET_SECONDS = 3.0  # of waiting for nodes, before anybody is told
_ASK_AGAIN_SECONDS = 60.0  # after which a node that could not say who it is gets another chance
_KEEP = f"{MessageType.QUERY}.keep"
Prepare = Callable[[str], Setup]
Shapes = Mapping[str, tuple[int, ...]]


# what travels


def content(values: Mapping[str, Any], **groups: ArrayRecord) -> RecordDict:
    """Plain values and groups of tensors as Flower carries them."""
    return RecordDict({"values": ConfigRecord({"json": json.dumps(values, separators=(",", ":"))}), **groups})


def arrays_of(tensors: Tensors | Upload) -> ArrayRecord:
    """Tensors, as they are or packed, in one array: Flower adds a third of a kilobyte to each. Shapes are known to both sides."""
    pieces = [tensors[name] for name in sorted(tensors)]
    data = b"".join(piece.joined() if isinstance(piece, Packed) else raw(piece.float()).tobytes() for piece in pieces)
    return ArrayRecord({"all": Array("uint8", (len(data),), "heroes", data)})


def values_of(records: RecordDict) -> dict[str, Any]:
    """The plain values of a message; ExchangeError where there are none."""
    try:
        values = json.loads(str(records.config_records["values"]["json"]))
    except (KeyError, ValueError, RecursionError) as error:
        raise ExchangeError(f"a message arrived without plain values: {said(error)}") from None
    if not isinstance(values, dict):
        raise ExchangeError("a message arrived whose plain values are no mapping")
    return values


def tensors_of(
    records: RecordDict, group: str, shapes: Shapes, bits: int = 32, received: Tensors | None = None
) -> dict[str, Tensor]:
    """A group of tensors of these shapes. Below 32 bits they are rounded, or the rounded differences from what was `received`."""
    data = _data(records, group)
    sizes = {name: tensors_bytes([shapes[name]], bits) for name in sorted(shapes)}
    if len(data) != sum(sizes.values()):
        raise ExchangeError(f"{len(data)} bytes of tensors arrived instead of {sum(sizes.values())}")
    ends = np.cumsum(list(sizes.values())).tolist()
    pieces = {name: data[end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}
    if bits == 32:
        return {name: _tensor(piece, shapes[name]) for name, piece in pieces.items()}
    packed = {name: Packed.parted(piece, shapes[name], bits) for name, piece in pieces.items()}
    return unpack_tensors(packed) if received is None else unpack_update(packed, received)


def _data(records: RecordDict, group: str) -> bytes:
    if group not in records.array_records or "all" not in records.array_records[group]:
        raise ExchangeError(f"a message arrived without {group}")
    return records.array_records[group]["all"].data


def _tensor(data: bytes, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.empty(shape)  # lies where torch would put it: sums depend on that
    tensor.view(-1).numpy()[:] = np.frombuffer(data, "<f4")
    return tensor


def order_of(task: Task) -> dict[str, Any]:
    """What a client must know of its task, besides the tensors."""
    a = task.assignment
    values = {key: getattr(a, key) for key in ("round", "client", "tau", "learning_rate", "probes", "nonce")}
    return {**values, "width": a.selection.width, "seed": task.seed}


def task_of(values: Mapping[str, Any], tensors: Tensors) -> Task:
    """The task again. What the server thinks of the client stays with the server."""
    assignment = Assignment(
        round=values["round"],
        client=values["client"],
        device="",
        selection=Selection(values["width"], (), ()),
        tau=values["tau"],
        learning_rate=values["learning_rate"],
        step_seconds=0.0,
        probe_seconds=0.0,
        transfer_seconds=0.0,
        bytes_down=0,
        bytes_up=0,
        probes=values["probes"],
        nonce=values["nonce"],
    )
    return Task(assignment, tensors, values["seed"])


# the client


def client_app(prepare: Prepare) -> ClientApp:
    """The app of a node. `prepare` makes of the server's configuration, as text, what training needs; it must be importable."""
    app = ClientApp()
    app.query()(partial(_introduce, prepare))
    app.query("keep")(partial(_keep, prepare))
    app.train()(partial(_train, prepare))
    return app


@lru_cache(maxsize=2)
def _resident(prepare: Prepare, text: str) -> tuple[Setup, Trainer]:
    """What this process has from one message to the next, for any of the nodes whose messages it gets."""
    setup = prepare(text)
    return setup, Trainer(setup.family, setup.settings, setup.device)


def _shapes(setup: Setup, width: int) -> Shapes:
    """Of the tensors that a model of this width has under the configured scheme."""
    return setup.family.weight_shapes(width) if setup.settings.train_in == "dense" else setup.family.tensor_shapes(width)


def _introduce(prepare: Prepare, message: Message, context: Context) -> Message:
    """Who this node is. The configuration stays with the node."""
    node = context.node_config
    try:
        text = str(values_of(message.content)["config"])
        setup, _ = _resident(prepare, text)
        client = int(node["partition-id"])
        if not 0 <= client < len(setup.data.shares):
            raise ConfigError(f"partition-id is {client}, but there are {len(setup.data.shares)} clients, from 0 on")
        context.state["heroes"] = ConfigRecord({"config": text})
        answer: dict[str, Any] = {"client": client, "keeps": "model-out" in node, "width": int(node.get("width", 0))}
    except HeroesError as error:
        answer = {"error": str(error)}
    except Exception as error:  # the data can be missing in any way
        answer = {"error": said(error)}
    return Message(content(answer), reply_to=message)


def _train(prepare: Prepare, message: Message, context: Context) -> Message:
    """A trained task, in the configured number of bits, and how long it took."""
    begun = time.perf_counter()
    if "heroes" not in context.state:
        return Message(content({"stranger": True}), reply_to=message)
    try:
        setup, trainer = _resident(prepare, str(context.state.config_records["heroes"]["config"]))
        values = values_of(message.content)
        shapes = _shapes(setup, values["width"])
        task = task_of(values, tensors_of(message.content, "tensors", shapes, values["bits"]))
        with one_thread() if values.get("one_thread") else nullcontext():
            start = time.perf_counter()
            update = trainer.trained(task, setup.data.train, setup.data.shares[task.assignment.client])
            time.sleep(float(context.node_config.get("sleep", 0.0)))  # a node may play a slower one
            seconds = time.perf_counter() - start
            packed, _ = trainer.packed(task, update.tensors)
    except Exception as error:  # the user's model and transform can fail in any way
        return Message(content({"error": said(error)}), reply_to=message)
    groups = {"tensors": arrays_of(packed or update.tensors)}
    if update.gradient is not None:
        groups["gradient"] = arrays_of({"gradient": update.gradient})
    took = {"training_seconds": round(seconds, 6), "busy_seconds": round(time.perf_counter() - begun, 6)}
    bits = setup.settings.up_bits if packed else 32
    return Message(content({**update_frame(update).header, **took, "bits": bits}, **groups), reply_to=message)


def _keep(prepare: Prepare, message: Message, context: Context) -> Message:
    """Write the final model where this node wants it."""
    try:
        setup, _ = _resident(prepare, str(context.state.config_records["heroes"]["config"]))
        path = Path(str(context.node_config["model-out"]))
        width = int(values_of(message.content)["width"])
        write_model(setup.family, width, tensors_of(message.content, "tensors", _shapes(setup, width)), path)
    except Exception as error:  # whatever it is, the server should hear of it
        return Message(content({"error": said(error)}), reply_to=message)
    return Message(content({"kept": True}), reply_to=message)


# the server


@dataclass(frozen=True)
class _Link:
    """The grid in use, and a look whether what is behind it still runs."""

    grid: Grid
    check: Callable[[], None] = lambda: None


_links: list[Callable[[], _Link]] = []  # the last is in use; the engine is made far from where Flower hands out its grid


def linked() -> bool:
    """Whether there is a grid, so that no simulation is needed."""
    return bool(_links)


@contextmanager
def using(grid: Grid) -> Iterator[None]:
    """Engines that are made inside use this grid."""
    _links.append(lambda: _Link(grid))
    try:
        yield
    finally:
        _links.pop()


@contextmanager
def simulated(clients: int, prepare: Prepare, workers: int) -> Iterator[None]:
    """Engines that are made inside use a simulation by Flower with so many nodes, in so many processes of Ray.

    It starts with the first of them: until then, whatever is wrong is said at once.
    """
    with ExitStack() as started:

        @lru_cache(maxsize=1)
        def link() -> _Link:
            started.enter_context(_silence())
            folder = tempfile.TemporaryDirectory(prefix="heroes-ray-", ignore_cleanup_errors=True)
            simulation = _Simulation(clients, prepare, workers, started.enter_context(folder))
            started.callback(simulation.stop)
            return _Link(simulation.grid(), simulation.check)

        _links.append(link)
        started.callback(_links.pop)
        yield


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
                return self._grids.get(timeout=_LONG)
        raise TrainingError(f"Flower's simulation did not start within {_START_SECONDS:g} seconds")

    def check(self) -> None:
        """TrainingError if the simulation is over."""
        if not self._thread.is_alive():
            reason = "it ended" if self._error is None else said(_root(self._error))
            raise TrainingError(f"Flower's simulation cannot go on: {reason}")

    def stop(self) -> None:
        self._over.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self, clients: int, app: ClientApp, workers: int, folder: str) -> None:
        server = ServerApp()
        server.main()(self._lead)
        arguments: dict[str, Any] = {"num_cpus": workers, "logging_level": logging.CRITICAL, "log_to_driver": False}
        if len(folder) < 40:  # the names of Ray's sockets must not get too long
            arguments["_temp_dir"] = folder
        resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
        try:
            from flwr.simulation import run_simulation

            run_simulation(server, app, clients, backend_config={"client_resources": resources, "init_args": arguments})
        except BaseException as error:  # Flower ends the process with SystemExit where Ray is missing
            self._error = error

    def _lead(self, grid: Grid, context: Context) -> None:
        self._grids.put(grid)
        self._over.wait()


def _root(error: BaseException) -> Exception:
    while error.__cause__ is not None:
        error = error.__cause__
    return error if isinstance(error, Exception) else RuntimeError(f"it left with {error!r}")


@contextmanager
def _silence() -> Iterator[None]:
    """Flower says nothing on its own: what matters becomes an error of ours."""
    logger = logging.getLogger("flwr")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@dataclass(frozen=True)
class _Sent:
    """A message under way: to which node, and for which assignment; None is a question who it is."""

    node: int
    at: float
    assignment: Assignment | None = None


@dataclass(frozen=True)
class _Node:
    """What a node said of itself."""

    client: int
    width: int  # of the final model; 0 is the complete one
    keeps: bool


class FlowerEngine(Scoring):
    """Sends tasks to the nodes of the grid in use. Every node is asked once who it is; a client is where its node is.

    `config` is the configuration as text, from which nodes set themselves up. The first round waits `wait_seconds` for `wanted`
    clients; later ones need `least`, and in real time the first one too. A round in which nothing is heard of anybody for
    `task_seconds` is closed. With a `clock`, time is real: it says when a round is over, and the `fleet` hears what clients took.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: FederatedData,
        batch_size: int = 500,
        *,
        config: str,
        wanted: int,
        least: int,
        down_bits: int = 32,
        task_seconds: float = 600.0,
        wait_seconds: float = 300.0,
        progress: Progress | None = None,
        clock: WallClock | None = None,
        fleet: MeasuredFleet | None = None,
        flops: Callable[[Assignment], float] = lambda assignment: 1.0,
    ) -> None:
        if not _links:
            raise ConfigError("engine.name is 'flower' but no grid is in use; heroes.run starts a simulation, or see flower_app")
        super().__init__(trainer, data, batch_size)
        self.link = _links[-1]()
        self.config = config
        self.wanted, self.least = wanted, least
        self.down_bits = down_bits
        self.task_seconds, self.wait_seconds = task_seconds, wait_seconds
        self.progress = progress
        self.clock, self.fleet, self.flops = clock, fleet, flops
        self._nodes: dict[int, _Node | None] = {}  # those that are there; None has not said yet who it is, or is nobody of ours
        self._asked: dict[int, float] = {}  # when a node was asked last; infinity: never again
        self._open: dict[str, _Sent] = {}  # messages that nobody answered yet
        self._strays: list[Update] = []  # answers to earlier rounds

    # one round

    def run(self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]) -> Iterator[Update | Lost]:
        with one_thread():
            self._gather()
            waiting: dict[int, Assignment] = {}
            yield from self._send_all(plan, make_task, waiting)
            yield from self._strays
            self._strays.clear()
            quiet, pause = time.monotonic(), _SHORT
            while waiting:
                heard = self._hear()
                for sent, reply in heard:
                    yield from self._answer(sent, reply, waiting, make_task)
                if heard:
                    quiet, pause = time.monotonic(), _SHORT
                yield from self._given_up(waiting, time.monotonic() - quiet)
                if waiting and not heard:
                    time.sleep(pause)
                    pause = min(2 * pause, _LONG)

    def close(self) -> None:
        """The grid belongs to whoever opened it."""

    def _send_all(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task], waiting: dict[int, Assignment]
    ) -> Iterator[Lost]:
        """Send every task; `waiting` is whose answers may come."""
        places = {node.client: number for number, node in self._nodes.items() if node is not None}
        tensors: Tensors | None = None
        for assignment in plan:
            if assignment.client not in places:
                yield Lost(assignment.client, "its node is not there")
                continue
            task = make_task(assignment)
            if task.tensors is not tensors:  # clients may get the same slice
                tensors = task.tensors
                arrays = arrays_of(tensors if self.down_bits == 32 else pack_tensors(tensors, self.down_bits))
            values = {**order_of(task), "bits": self.down_bits, "one_thread": self.clock is None}
            if self._push(Message(content(values, tensors=arrays), places[assignment.client], MessageType.TRAIN), assignment):
                waiting[assignment.client] = assignment
            else:
                yield Lost(assignment.client, "its node did not take the message")

    def _answer(
        self, sent: _Sent, reply: Message, waiting: dict[int, Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
        assignment = sent.assignment
        assert assignment is not None
        if waiting.get(assignment.client) is not assignment:
            yield from self._stray(assignment, reply)
            return
        del waiting[assignment.client]
        found = self._read(assignment, reply, lambda: make_task(assignment).tensors)
        if isinstance(found, Update) and self.clock is not None:
            self.clock.hear(assignment.client)
            self._measure(assignment, values_of(reply.content), time.monotonic() - sent.at)
        yield found

    def _stray(self, assignment: Assignment, reply: Message) -> Iterator[Update]:
        """An answer to an earlier round: it is handed on without its tensors, to be counted and refused."""
        found = self._read(assignment, reply, None)
        if isinstance(found, Update):
            yield found

    def _read(self, assignment: Assignment, reply: Message, received: Callable[[], Tensors] | None) -> Update | Lost:
        """What a node answered, where its tensors can be unpacked."""
        client = assignment.client
        if reply.has_error():
            return Lost(client, f"Flower says: {' '.join(str(reply.error.reason).split())}"[:300])
        try:
            values = values_of(reply.content)
            if values.get("stranger"):
                self._nodes = {n: node for n, node in self._nodes.items() if node is None or node.client != client}  # ask again
                return Lost(client, "its node had begun anew and does not know the configuration yet")
            if "error" in values:
                return Lost(client, str(values["error"])[:300])
            update = read_update(Frame(values, {}))
            if received is None:
                return update
            sent = received()
            shapes = {name: tuple(tensor.shape) for name, tensor in sent.items()}
            update = replace(update, tensors=tensors_of(reply.content, "tensors", shapes, values["bits"], sent))
            if "gradient" in reply.content:
                total = sum(tensor.numel() for tensor in sent.values())
                update = replace(update, gradient=tensors_of(reply.content, "gradient", {"": (total,)})[""])
            return update
        except Exception as error:  # whatever a node may send
            return Lost(client, f"its answer is malformed: {said(error)}", arrived=True)

    def _measure(self, assignment: Assignment, values: Mapping[str, Any], round_trip: float) -> None:
        """Tell the fleet what the client took, if it says so."""
        training, busy = (_seconds(values.get(key)) for key in ("training_seconds", "busy_seconds"))
        if self.fleet is not None and training is not None and busy is not None:
            moved = assignment.bytes_down + assignment.bytes_up
            training, transfer = min(training, round_trip), max(0.0, round_trip - busy)  # it cannot have been longer
            self.fleet.note(assignment.client, self.flops(assignment), training, moved, transfer)

    def _given_up(self, waiting: dict[int, Assignment], quiet: float) -> Iterator[Lost]:
        """Those who are not waited for any longer."""
        for client in list(waiting):
            lost = None if self.clock is None else self.clock.over(client)
            if lost is None and quiet > self.task_seconds:
                lost = Lost(client, f"nothing was heard for {self.task_seconds:g} seconds", "late")
            if lost is not None:
                del waiting[client]
                yield lost

    # who is there

    def present(self) -> Mask | None:
        """Which clients can be asked; waits until there are enough. In virtual time, as if everybody could."""
        if self.clock is None:
            return None
        self._gather()
        there = np.zeros(len(self.data.shares), bool)
        there[self._clients()] = True
        return there

    def _clients(self) -> list[int]:
        return sorted({node.client for node in self._nodes.values() if node is not None})

    def _gather(self) -> None:
        """Look who is there, and wait while there are too few."""
        begun, pause, told = time.monotonic(), _SHORT, 0.0
        self._look()
        while len(self._clients()) < self.wanted:
            waited = time.monotonic() - begun
            if waited > self.wait_seconds:
                break
            if waited > max(_QUIET_SECONDS, 2 * told):
                told = waited
                self._tell(f"waiting for nodes: {len(self._clients())} of {self.wanted} are there")
            time.sleep(pause)
            pause = min(2 * pause, _LONG)
            self._look()
        if len(self._clients()) < (self.wanted if self.clock is None else self.least):
            there = f"{len(self._clients())} of {self.wanted} clients are there after {self.wait_seconds:g} seconds"
            raise TrainingError(f"too few nodes: {there} (engine.wait_seconds); start more, then resume")
        self.wanted = self.least

    def _look(self) -> None:
        """Forget nodes that are gone, ask new ones who they are, and hear what comes."""
        there, now = sorted(self.link.grid.get_node_ids()), time.monotonic()
        self._asked = {number: self._asked[number] for number in there if number in self._asked and number in self._nodes}
        self._nodes = {number: self._nodes.get(number) for number in there}
        for number, node in self._nodes.items():
            if node is None and now > self._asked.get(number, -math.inf) + _ASK_AGAIN_SECONDS:
                self._asked[number] = now
                self._push(Message(content({"config": self.config}), number, MessageType.QUERY), None)
        for sent, reply in self._hear():
            assert sent.assignment is not None
            self._strays.extend(self._stray(sent.assignment, reply))

    def _meet(self, sent: _Sent, reply: Message) -> None:
        """A node says who it is. Of two that say the same the later is believed: the other may be gone without a word."""
        try:
            if reply.has_error():
                raise ExchangeError(str(reply.error.reason))
            values = values_of(reply.content)
            if "error" in values:
                raise ExchangeError(str(values["error"]))
            node = _Node(int(values["client"]), int(values["width"]), bool(values["keeps"]))
            if not 0 <= node.client < len(self.data.shares):
                raise ExchangeError(f"it says it is client {node.client}, of {len(self.data.shares)}")
        except Exception as error:  # whatever a node may send
            self._tell(f"a node is left out: {said(error)}")
            return
        if sent.node not in self._nodes:
            return
        for number in [number for number, other in self._nodes.items() if other is not None and other.client == node.client]:
            self._tell(f"client {node.client} is at another node from here on")
            self._nodes[number], self._asked[number] = None, math.inf
        self._nodes[sent.node] = node

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            self.progress(what, 0, None)

    # messages

    def _push(self, message: Message, assignment: Assignment | None) -> bool:
        node = message.metadata.dst_node_id
        for number in self.link.grid.push_messages([message]):
            if number:
                self._open[str(number)] = _Sent(node, time.monotonic(), assignment)
                return True
        return False

    def _hear(self) -> list[tuple[_Sent, Message]]:
        """Answers to tasks that have come, also late ones; nodes that say who they are get noted."""
        self.link.check()
        found = []
        for reply in self.link.grid.pull_messages(list(self._open)) if self._open else ():
            sent = self._open.pop(reply.metadata.reply_to_message_id, None)
            if sent is not None and sent.assignment is not None:
                found.append((sent, reply))
            elif sent is not None:
                self._meet(sent, reply)
        return found

    # the end

    def hand_out(self, tensors: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Give every node that wants it the final model at its width; when this returns, they have written it."""
        self._look()
        messages, troubles = {}, []
        for number, node in self._nodes.items():
            if node is None or not node.keeps:
                continue
            width = node.width or widths[-1]
            if width not in widths:
                troubles.append(f"client {node.client} wants width {width}; there are {', '.join(map(str, widths))}")
                continue
            records = content({"width": width}, tensors=arrays_of(tensors(width)))
            for name in self.link.grid.push_messages([Message(records, number, _KEEP)]):
                messages[name] = node.client
        deadline = time.monotonic() + self.task_seconds
        while messages and time.monotonic() < deadline:
            self.link.check()
            for reply in self.link.grid.pull_messages(list(messages)):
                client = messages.pop(reply.metadata.reply_to_message_id)
                why = reply.error.reason if reply.has_error() else values_of(reply.content).get("error")
                troubles += [f"client {client}: {why}"] if why else []
            time.sleep(_LONG)
        troubles += [f"client {client} did not answer" for client in messages.values()]
        if troubles:
            raise TrainingError(f"the final model is not everywhere: {'; '.join(troubles)}")


def _seconds(value: object) -> float | None:
    return value if isinstance(value, float) and 0.0 <= value < float("inf") else None
