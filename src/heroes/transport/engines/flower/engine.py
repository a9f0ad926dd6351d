"""The server side: tasks go to nodes over a grid, answers come back, and nodes may come and go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
from flwr.app import Message, MessageType

from heroes.client.training import Trainer, one_thread
from heroes.data.datasets import Progress
from heroes.data.examples import FederatedData
from heroes.errors import ConfigError, ExchangeError, TrainingError, printable, said
from heroes.fleet.faults import Mask
from heroes.fleet.wall import WallClock
from heroes.messages import Assignment, Lost, Measurement, Spent, Task, Tensors, Update
from heroes.planning.loads import done
from heroes.slices.exchange import pack_tensors
from heroes.transport.engines.flower.answers import is_strange, read_answer
from heroes.transport.engines.flower.grids import Link, simulated
from heroes.transport.engines.flower.messages import (
    content,
    digest_of,
    joined,
    order_of,
    values_of,
)
from heroes.transport.engines.flower.metering import Ledger
from heroes.transport.opening import Parts
from heroes.transport.workers.pool import cores
from heroes.transport.workers.scoring import Scoring

_SHORT, _LONG = 0.01, 0.25  # seconds between two looks for messages
_QUIET_SECONDS = 3.0  # of waiting for nodes, before anybody is told
_ASK_AGAIN_SECONDS = 60.0  # after which a node that could not say who it is gets another chance
_KEEP = f"{MessageType.QUERY}.keep"


@dataclass(frozen=True)
class _Sent:
    """A message under way: to which node, and for which assignment; None is a question who it is.

    `told`: the configuration went with the task.
    """

    node: int
    at: float
    assignment: Assignment | None = None
    told: bool = False


@dataclass(frozen=True)
class _Node:
    """What a node said of itself."""

    client: int
    width: int  # of the final model; 0 is the complete one
    keeps: bool


class FlowerEngine(Scoring):
    """Sends tasks to the nodes of a grid. Every node is asked once which client it is.

    `config` is the configuration as text, from which nodes set themselves up. The first round waits
    `wait_seconds` for `wanted` clients; later ones need `least`, and in real time the first one too. A round
    in which nothing is heard of anybody for `task_seconds` is closed. With a `clock`, time is real: it says
    when a round is over, and hears what clients took.
    """

    def __init__(
        self,
        link: Link,
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
        flops: Callable[[Assignment], float] = lambda assignment: 1.0,
    ) -> None:
        super().__init__(trainer, data, batch_size)
        self.link = link
        self.config = config
        self.wanted, self.least = wanted, least
        self.down_bits = down_bits
        self.task_seconds, self.wait_seconds = task_seconds, wait_seconds
        self.progress = progress
        self.clock, self.flops = clock, flops
        self._nodes: dict[
            int, _Node | None
        ] = {}  # those that are there; None has not said yet who it is, or is nobody of ours
        self._asked: dict[int, float] = {}  # when a node was asked last; infinity: never again
        self._open: dict[str, _Sent] = {}  # messages that nobody answered yet
        self._strays: list[Update] = []  # answers to earlier rounds
        self._ledger = Ledger()

    # one round

    def run(
        self, plan: Sequence[Assignment], make_task: Callable[[Assignment], Task]
    ) -> Iterator[Update | Lost]:
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

    def _send_all(
        self,
        plan: Sequence[Assignment],
        make_task: Callable[[Assignment], Task],
        waiting: dict[int, Assignment],
    ) -> Iterator[Lost]:
        """Send every task; `waiting` collects whose answers may come."""
        places = {node.client: number for number, node in self._nodes.items() if node is not None}
        tensors: Tensors | None = None
        for assignment in plan:
            if assignment.client not in places:
                yield Lost(assignment.client, "its node is not there")
                continue
            task = make_task(assignment)
            if task.tensors is not tensors:  # clients may get the same slice
                tensors = task.tensors
                data = self._joined(tensors)
            if self._push(self._order(task, data, places[assignment.client]), assignment):
                waiting[assignment.client] = assignment
            else:
                yield Lost(assignment.client, "its node did not take the message")

    def _joined(self, tensors: Tensors) -> bytes:
        return joined(tensors if self.down_bits == 32 else pack_tensors(tensors, self.down_bits))

    def _order(self, task: Task, data: bytes, node: int, **besides: str) -> Message:
        """A task for a node, which belongs to this run's configuration and no other."""
        alone = {"one_thread": True} if self.clock is None else {}
        mark = {"bits": self.down_bits, "digest": digest_of(self.config)}
        return Message(
            content({**order_of(task), **mark, **alone, **besides}, tensors=data), node, MessageType.TRAIN
        )

    def _told(self, sent: _Sent, reply: Message, make_task: Callable[[Assignment], Task]) -> bool:
        """Send a task again with the configuration, if the node does not know that; whether it was sent.

        A node that was restarted, or kept another run's configuration, does not know it.
        """
        if sent.told or sent.assignment is None or not is_strange(reply):
            return False
        task = make_task(sent.assignment)
        order = self._order(task, self._joined(task.tensors), sent.node, config=self.config)
        return self._push(order, sent.assignment, told=True)

    def _answer(
        self,
        sent: _Sent,
        reply: Message,
        waiting: dict[int, Assignment],
        make_task: Callable[[Assignment], Task],
    ) -> Iterator[Update | Lost]:
        assignment = sent.assignment
        assert assignment is not None
        if waiting.get(assignment.client) is not assignment:
            yield from self._stray(sent, reply)
            return
        if self._told(sent, reply, make_task):
            return
        del waiting[assignment.client]
        found = read_answer(assignment, reply, lambda: make_task(assignment).tensors)
        if isinstance(found, Update) and self.clock is not None:
            self.clock.hear(assignment.client, self._measure(sent, reply, found.steps))
        yield found

    def _stray(self, sent: _Sent, reply: Message) -> Iterator[Update]:
        """Hand on an answer to an earlier round without its tensors, to be counted and refused.

        Its client was slower than expected, and the clock is told.
        """
        assert sent.assignment is not None
        found = read_answer(sent.assignment, reply, None)
        if isinstance(found, Update):
            self._measure(sent, reply, found.steps)
            yield found

    def _measure(self, sent: _Sent, reply: Message, steps: float | None) -> Spent | None:
        """Tell the clock how long the client computed, if it says so, and how long the rest took."""
        assignment, round_trip = sent.assignment, time.monotonic() - sent.at
        spent = self._ledger.spent(sent.node, values_of(reply.content), round_trip)
        if self.clock is None or assignment is None or spent is None:
            return None
        moved, besides = assignment.bytes_down + assignment.bytes_up, round_trip - spent.computing
        flops = self.flops(done(assignment, steps))
        self.clock.note(Measurement(assignment.client, flops, spent.computing, moved, besides))
        return spent

    def _given_up(self, waiting: dict[int, Assignment], quiet: float) -> Iterator[Lost]:
        """The clients that are no longer waited for."""
        for client in list(waiting):
            lost = None if self.clock is None else self.clock.over(client)
            if lost is None and quiet > self.task_seconds:
                lost = Lost(client, f"nothing was heard for {self.task_seconds:g} seconds", "late")
            if lost is not None:
                del waiting[client]
                yield lost

    # who is there

    def present(self) -> Mask | None:
        """Which clients can be asked, after waiting for enough; in virtual time, everybody."""
        if self.clock is None:
            return None
        self._gather()
        there = np.zeros(len(self.data.shares), bool)
        there[self._clients()] = True
        return there

    def _clients(self) -> list[int]:
        return sorted({node.client for node in self._nodes.values() if node is not None})

    def _gather(self) -> None:
        """Look which nodes are there, and wait while there are too few."""
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
            found = f"{len(self._clients())} of {self.wanted} clients"
            there = f"{found} are there after {self.wait_seconds:g} seconds"
            raise TrainingError(
                f"too few nodes: {there}; start more, or raise engine.wait_seconds, then resume"
            )
        self.wanted = self.least

    def _look(self) -> None:
        """Forget nodes that are gone, ask new ones who they are, and read what has come."""
        there, now = sorted(self.link.grid.get_node_ids()), time.monotonic()
        self._asked = {
            number: self._asked[number] for number in there if number in self._asked and number in self._nodes
        }
        self._nodes = {number: self._nodes.get(number) for number in there}
        for number, node in self._nodes.items():
            if node is None and now > self._asked.get(number, -math.inf) + _ASK_AGAIN_SECONDS:
                self._asked[number] = now
                self._push(Message(content({"config": self.config}), number, MessageType.QUERY), None)
        for sent, reply in self._hear():
            self._strays.extend(self._stray(sent, reply))

    def _meet(self, sent: _Sent, reply: Message) -> None:
        """A node says which client it is; of two that say the same, the later is believed."""
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
        for number in [
            number
            for number, other in self._nodes.items()
            if other is not None and other.client == node.client
        ]:
            self._tell(f"client {node.client} is at another node from here on")
            self._nodes[number], self._asked[number] = None, math.inf
        self._nodes[sent.node] = node
        self._ledger.open(sent.node, values)

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            self.progress(what, 0, None)

    # messages

    def _push(self, message: Message, assignment: Assignment | None, told: bool = False) -> bool:
        node = message.metadata.dst_node_id
        for number in self.link.grid.push_messages([message]):
            if number:
                self._open[str(number)] = _Sent(node, time.monotonic(), assignment, told)
                return True
        return False

    def _hear(self) -> list[tuple[_Sent, Message]]:
        """Answers to tasks that have come, late ones too; nodes that say who they are get noted."""
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

    def hand_out(self, tensors_of_width: Callable[[int], Tensors], widths: Sequence[int]) -> None:
        """Give every node that wants it the final model at its width; return when they have it."""
        self._look()
        messages, troubles = {}, []
        for number, node in self._nodes.items():
            if node is None or not node.keeps:
                continue
            width = node.width or widths[-1]
            if width not in widths:
                troubles.append(
                    f"client {node.client} wants width {width}; there are {', '.join(map(str, widths))}"
                )
                continue
            records = content(
                {"width": width, "config": self.config}, tensors=joined(tensors_of_width(width))
            )
            for name in self.link.grid.push_messages([Message(records, number, _KEEP)]):
                messages[name] = node.client
        deadline = time.monotonic() + self.task_seconds
        while messages and time.monotonic() < deadline:
            self.link.check()
            for reply in self.link.grid.pull_messages(list(messages)):
                client = messages.pop(reply.metadata.reply_to_message_id)
                why = reply.error.reason if reply.has_error() else values_of(reply.content).get("error")
                troubles += [f"client {client}: {printable(str(why), 300)}"] if why else []
            time.sleep(_LONG)
        troubles += [f"client {client} did not answer" for client in messages.values()]
        if troubles:
            raise TrainingError(f"the final model is not everywhere: {'; '.join(troubles)}")


@contextmanager
def opened(parts: Parts, link: Link | None = None) -> Iterator[FlowerEngine]:
    """The engine on the grid that is given; without one, on a simulation that ends with the context."""
    with _simulation(parts) if link is None else nullcontext(link) as there:
        yield FlowerEngine(
            there,
            parts.trainer,
            parts.data,
            parts.batch_size,
            config=parts.config,
            wanted=len(parts.data.shares) if parts.clock is None else parts.cohort,
            least=max(1, parts.least),
            down_bits=parts.down_bits,
            task_seconds=parts.task_seconds,
            wait_seconds=parts.wait_seconds,
            progress=parts.progress,
            clock=parts.clock,
            flops=parts.cost,
        )


def _simulation(parts: Parts) -> AbstractContextManager[Link]:
    """A node for every client, in no more processes than there are clients in a round."""
    if parts.prepare is None:
        raise ConfigError(
            "engine.name is 'flower': its simulation has no model or data of your own; a deployed app may "
            "have them (heroes flower init DIR --own), and so has engine.name = 'processes'"
        )
    return simulated(len(parts.data.shares), parts.prepare, min(parts.workers or cores(), parts.asked))
