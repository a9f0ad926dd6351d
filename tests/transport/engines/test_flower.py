"""Flower's nodes: the same bits as one client after the other, clients that keep their data, and servers that
cope with nodes.
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import command_line
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.app.error import Error
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity
from patience import patience
from safetensors.torch import load_file

import heroes
from heroes import flower_app
from heroes.errors import ConfigError, ExchangeError, RunFolderError, TrainingError
from heroes.federation import Policy
from heroes.fleet.availability import Connected
from heroes.fleet.devices import FLEETS, Fleet
from heroes.fleet.known import learned
from heroes.fleet.wall import MeasuredFleet, WallClock
from heroes.messages import Lost, Measurement, Task
from heroes.models.cnn import build as build_cnn
from heroes.models.family import Family
from heroes.planning.loads import Costs, load_of, widths_afforded
from heroes.rounds import run_round
from heroes.settings.recipes import recipe
from heroes.slices.exchange import pack_tensors, unpack_tensors
from heroes.strategies.registry import PAPER
from heroes.transport.engines import flower
from heroes.transport.engines.flower import FlowerEngine, client_app, engine
from heroes.transport.engines.flower.client import age
from heroes.transport.engines.flower.messages import content, joined, order_of, task_of, tensors_of, values_of

SMALL = {"federation.clients": 8, "federation.cohort": 3, "federation.rounds": 2, "training.device": "cpu"}
NOTHING = flower_app.Parts()  # of our own
Answer = Callable[[Message], Message | None]


class LocalGrid(Grid):
    """Flower's nodes without Flower's runtime: each is a client app that answers when its answer is asked
    for.
    """

    def __init__(self, app) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app = app
        self.nodes: dict[int, Context] = {}
        self.sent: dict[str, Message] = {}
        self.delivered: list[Message] = []
        self.instead: dict[int, Answer] = {}  # what a node does instead of its app; None is nothing yet

    def join(self, node: int, **config) -> None:
        self.nodes[node] = Context(
            1, node, {key.replace("_", "-"): value for key, value in config.items()}, RecordDict(), {}
        )

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = name = f"m{len(self.delivered)}"
            self.delivered.append(message)
            self.sent[name] = copy.deepcopy(message)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = []
        for name in message_ids:
            node = self.sent[name].metadata.dst_node_id
            reply = self.instead.get(node, self.answer)(self.sent[name]) if node in self.nodes else None
            if reply is not None:
                del self.sent[name]
                replies.append(reply)
        return replies

    def answer(self, message: Message) -> Message:
        return self.app(message, self.nodes[message.metadata.dst_node_id])

    def set_run(self, run) -> None: ...

    def run(self): ...

    def create_message(self, *_) -> Message: ...

    def send_and_receive(self, messages, *, timeout=None): ...


@pytest.fixture
def tiny(world):
    """A tiny federation on local nodes, one for each client, and its grid; the engine can be changed."""

    def make(clients=6, cohort=6, joined=None, bits=(32, 32), wall=None, **changes):
        local = world.federation(clients=clients, cohort=cohort, up_bits=bits[0], down_bits=bits[1])
        trainer, data = local.engine.trainer, local.engine.data
        grid = LocalGrid(client_app(lambda text, client: (trainer, data)))
        for client in range(clients) if joined is None else joined:
            grid.join(100 + client, partition_id=client)
        wanted = {
            "config": "seed = 1",
            "wanted": clients,
            "least": 1,
            "down_bits": bits[1],
            "clock": wall,
        } | changes
        engine = FlowerEngine(flower.Link(grid), trainer, data, **wanted)
        real = {"clock": wall, "fleet": MeasuredFleet(local.fleet), "availability": Connected(engine.present)}
        return replace(local, engine=engine, **(real if wall is not None else {})), local, grid

    return make


def job(name, folder):
    """What `flower_job` does, which says nothing."""
    command = [sys.executable, str(Path(__file__).with_name("flower_job.py")), name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(1400))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.timeout(1500)
def test_a_simulation_gives_the_bits_of_one_client_after_the_other(tmp_path):
    job("strategies", tmp_path)
    carried = sorted(path.name for path in (tmp_path / "in_process").iterdir())
    assert len(carried) >= len(PAPER)
    for strategy in carried:
        for name in ("records.jsonl", "model.safetensors"):
            here, there = (tmp_path / engine / strategy / name for engine in ("in_process", "flower"))
            assert here.read_bytes() == there.read_bytes(), (strategy, name)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_simulation_ends_with_a_run_that_fails(tmp_path):
    job("failed", tmp_path)
    assert json.loads((tmp_path / "failed.json").read_text()) == {"left": [], "same": True, "over": True}


@pytest.mark.parametrize("bits", [(32, 32), (8, 8), (2, 16)])
def test_local_nodes_give_the_bits_of_one_client_after_the_other(tiny, bits):
    there, here, _ = tiny(bits=bits)
    state = here.strategy.begin(0)
    after, entry = run_round(there, state)
    expected, same = run_round(here, state)
    assert entry == same
    assert all(torch.equal(tensor, after.tensors[name]) for name, tensor in expected.tensors.items())


# what travels


@pytest.mark.parametrize(
    "besides", [{}, {"batch": 1.25, "up_bits": 4, "up_share": 0.5}, {"last": 0.5, "until": 2.5}]
)
def test_a_task_says_all_that_a_client_needs(world, besides):
    given = world.assignment(client=3, nonce=9, **besides)
    read = task_of(order_of(Task(given, {}, 7)), {})
    assert read.seed == 7
    told = ("round", "client", "tau", "learning_rate", "probes", "nonce")
    for name in (*told, "up_bits", "up_share", "batch", "last", "until"):
        assert getattr(read.assignment, name) == getattr(given, name)
    assert read.assignment.selection.width == given.selection.width


@pytest.mark.parametrize("bits", [32, 8])
@pytest.mark.parametrize("width", range(1, 5))
def test_messages_are_little_larger_than_the_tensors_of_the_cifar_cnn(world, width, bits):
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    tensors = {name: torch.ones(shape) for name, shape in Family(build_cnn, 4).tensor_shapes(width).items()}
    packed = tensors if bits == 32 else pack_tensors(tensors, bits)
    payload = sum(piece.nbytes for piece in packed.values())
    values = order_of(
        Task(world.assignment(round=900, client=99, nonce=2**62, learning_rate=1 / 30), tensors, 2**62)
    )
    message = Message(
        content({**values, "bits": bits, "digest": "0" * 16}, tensors=joined(packed)),
        2**62,
        MessageType.TRAIN,
    )
    message.metadata.__dict__["_message_id"] = "0" * 64
    objects = get_all_nested_objects(message)
    size = sum(len(part.deflate()) for part in objects.values())
    assert len(objects) == 3  # a request or two for each
    assert payload < size <= (1.04 if (width, bits) == (1, 8) else 1.02) * payload


@pytest.mark.parametrize("bits", [32, 16, 8, 4, 2])
def test_tensors_arrive_as_they_were_sent(bits):
    sent = {"b": torch.randn(3, 9), "a": torch.randn(2), "c": torch.zeros(0, 3), "d": torch.tensor(4.0)}
    packed = sent if bits == 32 else pack_tensors(sent, bits)
    shapes = {name: tuple(tensor.shape) for name, tensor in sent.items()}
    got = tensors_of(content({}, tensors=joined(packed)), "tensors", shapes, bits)
    assert all(
        torch.equal(got[name], t) for name, t in (sent if bits == 32 else unpack_tensors(packed)).items()
    )
    assert got.keys() == sent.keys()


def test_numbers_that_are_none_arrive_as_well():
    sent = torch.tensor([float("nan"), float("inf"), -0.0])
    got = tensors_of(content({}, tensors=joined({"a": sent})), "tensors", {"a": (3,)})["a"]
    assert got.numpy().tobytes() == sent.numpy().tobytes()


def array(data):
    return ArrayRecord({"all": Array("uint8", (len(data),), "heroes", data)})


@pytest.mark.parametrize(
    ("bits", "records"),
    [
        (32, {"tensors": array(bytes(7))}),
        (32, {"heroes": ConfigRecord({"tensors": bytes(7)})}),
        (8, {"heroes": ConfigRecord({"tensors": bytes(8)})}),
        (8, {"heroes": ConfigRecord({"tensors": b"\0\0\xc0\x7f\0\0"})}),  # a scale that is no number
        (3, {"heroes": ConfigRecord({"tensors": bytes(6)})}),
        (32, {"heroes": ConfigRecord({"tensors": "text"})}),
        (32, {"heroes": array(bytes(8))}),
        (32, {"tensors": ArrayRecord()}),
        (32, {}),
    ],
)
def test_tensors_that_make_no_sense_are_refused(bits, records):
    with pytest.raises(ExchangeError):
        tensors_of(RecordDict(records), "tensors", {"a": (2,)}, bits)


def test_much_travels_in_pieces_and_little_in_one_record():
    sent = {"a": torch.arange(2.0**21)}  # 8 MiB
    records = content({"b": 1}, tensors=joined(sent), gradient=bytes(8))
    assert list(records.array_records) == ["tensors"]
    assert list(records.config_records) == ["heroes"]
    assert torch.equal(tensors_of(records, "tensors", {"a": (2**21,)})["a"], sent["a"])
    assert torch.equal(tensors_of(records, "gradient", {"g": (2,)})["g"], torch.zeros(2))
    assert values_of(records) == {"b": 1}


@pytest.mark.parametrize("values", [None, "", "[]", "{"])
def test_messages_without_plain_values_are_refused(values):
    records = RecordDict() if values is None else RecordDict({"heroes": ConfigRecord({"values": values})})
    with pytest.raises(ExchangeError, match="plain values"):
        values_of(records)


# who is there


def test_a_node_that_returns_under_another_number_is_the_same_client(tiny):
    there, here, grid = tiny()
    state = here.strategy.begin(0)
    run_round(there, state)
    del grid.nodes[103]
    grid.join(7, partition_id=3)
    _, entry = run_round(there, state)
    assert entry == run_round(here, state)[1]
    assert [m.metadata.dst_node_id for m in grid.delivered if m.metadata.message_type == MessageType.QUERY][
        -1
    ] == 7


def test_a_node_that_is_gone_costs_its_client_only(tiny):
    there, here, grid = tiny()
    state = here.strategy.begin(0)
    run_round(there, state)
    del grid.nodes[103]
    _, entry = run_round(there, state)
    assert entry.missing == (Lost(3, "its node is not there"),)


@pytest.mark.parametrize("kept", [None, "seed = 2"])
def test_a_node_that_forgot_the_configuration_or_kept_another_runs_is_told_in_the_same_round(tiny, kept):
    there, here, grid = tiny()
    state = here.strategy.begin(0)
    run_round(there, state)
    context = grid.nodes[103]
    context.state.clear()
    if kept is not None:
        context.state["heroes"] = ConfigRecord({"config": kept})
    _, entry = run_round(there, state)
    assert entry == run_round(here, state)[1]
    assert context.state.config_records["heroes"]["config"] == "seed = 1"
    told = [m for m in grid.delivered[12:] if "config" in values_of(m.content)]
    assert [m.metadata.dst_node_id for m in told] == [103]  # nobody else needs it again


def test_a_node_that_does_not_take_the_configuration_costs_its_client_only(tiny):
    there, here, grid = tiny()
    state = here.strategy.begin(0)
    run_round(there, state)
    grid.instead[103] = lambda message: Message(content({"stranger": True}), reply_to=message)
    _, entry = run_round(there, state)
    assert [(lost.client, lost.reason) for lost in entry.missing] == [
        (3, "its node does not know the configuration")
    ]
    assert len(grid.delivered) == 6 + 6 + 6 + 1  # who are you, two rounds, and one task again


def test_a_node_never_trains_by_the_configuration_of_another_run(tiny):
    there, here, grid = tiny()
    asked = []
    grid.app = client_app(
        lambda text, client: asked.append(text) or (there.engine.trainer, there.engine.data)
    )
    for context in grid.nodes.values():
        context.state["heroes"] = ConfigRecord({"config": "seed = 2"})
    run_round(there, here.strategy.begin(0))
    assert set(asked) == {"seed = 1"}


def test_nodes_that_are_nobody_are_left_out_and_of_two_the_later_is_believed(tiny):
    told = []
    there, here, grid = tiny(progress=lambda *what: told.append(what[0]))
    grid.join(1, partition_id=6)
    grid.join(2, partition_id=0)
    grid.join(3)
    _, entry = run_round(there, here.strategy.begin(0))
    assert entry.missing == ()
    assert sum("left out" in text for text in told) == 2
    assert sum("client 0 is at another node" in text for text in told) == 1
    trained = {m.metadata.dst_node_id for m in grid.delivered if m.metadata.message_type == MessageType.TRAIN}
    assert trained == {100, 101, 102, 103, 104, 105}


def test_too_few_nodes_are_waited_for_and_then_an_error(tiny, monkeypatch):
    monkeypatch.setattr(engine, "_QUIET_SECONDS", 0.0)
    told = []
    there, here, _ = tiny(joined=[0, 1], wait_seconds=0.2, progress=lambda *what: told.append(what[0]))
    with pytest.raises(TrainingError, match=r"too few nodes: 2 of 6 clients are there after 0\.2 seconds"):
        run_round(there, here.strategy.begin(0))
    assert "waiting for nodes: 2 of 6 are there" in told


# what comes back


def _error(message):
    return Message(Error(code=2, reason="it broke"), reply_to=message)


def _empty(message):
    return Message(RecordDict(), reply_to=message)


def _nonsense(message):
    return Message(RecordDict({"heroes": ConfigRecord({"values": '{"client": "x"}'})}), reply_to=message)


@pytest.mark.parametrize(
    ("answer", "reason"), [(_error, "it broke"), (_empty, "malformed"), (_nonsense, "malformed")]
)
def test_an_answer_that_is_none_costs_its_client_only(tiny, answer, reason):
    there, here, grid = tiny()
    state = here.strategy.begin(0)
    run_round(there, state)
    grid.instead[103] = answer
    _, entry = run_round(there, state)
    assert [(lost.client, lost.cause) for lost in entry.missing] == [(3, "failed")]
    assert reason in entry.missing[0].reason
    assert sum(client.loss is not None for client in entry.clients) == 5


def test_an_error_in_testing_is_one_sentence(tiny):
    there, _, _ = tiny()
    with pytest.raises(TrainingError, match=r"^the model could not be tested: KeyError: "):
        there.engine.score({}, 2)()


def test_an_answer_that_comes_late_is_counted_in_the_round_in_which_it_comes(tiny):
    there, here, grid = tiny(task_seconds=0.05)
    state = here.strategy.begin(0)
    state, _ = run_round(there, state)
    grid.instead[103] = lambda message: None
    state, entry = run_round(there, state)
    assert [(lost.client, lost.cause) for lost in entry.missing] == [(3, "late")]
    grid.instead.clear()
    state, entry = run_round(there, state)
    assert entry.lost == {"round": 1}
    assert entry.missing == (Lost(3, "answers round 2 in round 3", "round", arrived=True),)
    assert sum(client.loss is not None for client in entry.clients) == 6


def _as(reply, **lie):
    """The same answer with other plain values."""
    record = reply.content.config_records["heroes"]
    values = values_of(reply.content) | lie
    reply.content["heroes"] = ConfigRecord({**record, "values": json.dumps(values)})
    return reply


@pytest.mark.parametrize("lie", [{"client": 1}, {"client": 5}, {"round": 2}, {"nonce": 7}])
def test_a_node_that_answers_as_another_client_is_refused_and_the_other_is_not(tiny, lie):
    there, here, grid = tiny()
    grid.instead[103] = lambda message: (
        _as(grid.answer(message), **lie)
        if message.metadata.message_type == MessageType.TRAIN
        else grid.answer(message)
    )
    _, entry = run_round(there, here.strategy.begin(0))
    assert [(lost.client, lost.cause, lost.arrived) for lost in entry.missing] == [(3, "forged", True)]
    assert {client.client for client in entry.clients if client.loss is not None} == {0, 1, 2, 4, 5}


def test_a_late_answer_under_another_name_counts_as_late_and_harms_nobody(tiny):
    there, here, grid = tiny(task_seconds=0.05)
    state, _ = run_round(there, here.strategy.begin(0))
    grid.instead[103] = lambda message: None
    state, _ = run_round(there, state)
    grid.instead[103] = lambda message: _as(grid.answer(message), client=1, round=3)
    _, entry = run_round(there, state)
    assert (entry.lost, {lost.client for lost in entry.missing}) == ({"round": 1, "forged": 1}, {3})


def test_nonces_do_not_follow_from_the_seed(tiny):
    there, here, grid = tiny()
    for _ in range(2):
        run_round(there, here.strategy.begin(0))
    nonces = [
        values_of(m.content)["nonce"] for m in grid.delivered if m.metadata.message_type == MessageType.TRAIN
    ]
    assert len(set(nonces)) == len(nonces) == 12


# real time


def parts(client):
    """All that a client's round is made of."""
    spent = client.start_seconds + client.compute_seconds + client.transfer_seconds + client.pause_seconds
    return spent + client.waiting


def test_in_real_time_clients_are_as_fast_as_they_were_measured_and_only_those_present_are_asked(tiny):
    there, here, _ = tiny(
        cohort=3, joined=[0, 2, 3, 5], wall=WallClock(), wanted=3, flops=lambda assignment: 1e6
    )
    state = here.strategy.begin(0)
    for _ in range(3):
        state, entry = run_round(there, state)
        assert {client.client for client in entry.clients} <= {0, 2, 3, 5}
        assert entry.clock == "wall"
        assert 0 < entry.duration < 60
        for client in entry.clients:
            assert 0 < client.compute_seconds < entry.duration
            assert parts(client) == pytest.approx(entry.duration, abs=0.05)
    assert 3 <= len(state.measured) <= 4
    assert set(state.measured) <= {0, 2, 3, 5}
    status = there.fleet.status(np.arange(6), 4, 0, state.measured)
    assert "measured" in status.devices
    assert np.isfinite(status.speed).all()


def third_saying(tiny, **told):
    """Client 3 in the record of a round in which its node answers late and says this of itself."""
    there, here, grid = tiny(wall=WallClock())

    def slow(message):
        time.sleep(0.02)
        return _as(grid.answer(message), **told)

    grid.instead[103] = lambda message: (
        slow(message) if message.metadata.message_type == MessageType.TRAIN else grid.answer(message)
    )
    _, entry = run_round(there, here.strategy.begin(0))
    (third,) = [client for client in entry.clients if client.client == 3]
    assert parts(third) == pytest.approx(entry.duration, abs=0.05)
    return third


@pytest.mark.parametrize(("told", "found"), [(0.01, 0.01), (1e9, 0.0), (-1.0, 0.0), ("long", 0.0)])
def test_in_real_time_the_start_of_a_clients_process_is_no_transfer(tiny, told, found):
    assert third_saying(tiny, started=told).start_seconds == found


@pytest.mark.parametrize(
    ("told", "found"), [(0.01, 0.01), (1e9, "all"), (-1.0, None), ("long", None), (math.nan, None)]
)
def test_in_real_time_a_node_that_measures_the_network_shows_it_apart_from_pauses(tiny, told, found):
    third = third_saying(tiny, network=told)
    if found == 0.01:
        assert third.transfer_seconds == 0.01
        assert third.pause_seconds >= 0.005
    else:  # it lies, or says nothing: all that is left is called transfer
        assert third.transfer_seconds >= 0.02
        assert third.pause_seconds == 0


def test_in_real_time_a_node_tells_its_name_and_its_memory(tiny):
    there, here, grid = tiny(wall=WallClock(), joined=range(1, 6), least=5, wanted=5)
    grid.join(100, partition_id=0, name="kitchen")
    _, entry = run_round(there, here.strategy.begin(0))
    assert {client.client: client.name for client in entry.clients if client.name} == {0: "kitchen"}
    assert all(client.memory > 10e6 for client in entry.clients)


def test_a_process_knows_how_long_it_has_been_there():
    first = age()
    assert first is not None
    assert 0 < first < 24 * 3600
    time.sleep(0.05)
    assert age() - first == pytest.approx(0.05, abs=0.5)


def test_in_real_time_a_round_ends_at_its_deadline_or_when_enough_are_in(tiny):
    clock = WallClock(deadline=0.3)
    there, here, grid = tiny(wall=clock)
    state = here.strategy.begin(0)
    run_round(there, state)
    grid.instead[103] = lambda message: None
    _, entry = run_round(there, state)
    assert entry.missing == (Lost(3, "not in after 0.30 seconds", "late"),)
    clock.deadline = None
    clock.absent(here.strategy.assign(state, here.fleet.status(np.arange(2), 1)).assignments, 1)
    clock.hear(0)
    assert clock.over(3).cause == "surplus"


def test_in_real_time_an_answer_that_comes_late_tells_how_slow_its_client_is(tiny):
    there, here, grid = tiny(wall=WallClock(deadline=0.3))
    grid.instead[103] = lambda message: (
        None if message.metadata.message_type == MessageType.TRAIN else grid.answer(message)
    )
    state, entry = run_round(there, here.strategy.begin(0))
    assert [(lost.client, lost.cause) for lost in entry.missing] == [(3, "late")]
    assert set(state.measured) == {0, 1, 2, 4, 5}
    grid.instead.clear()
    state, _ = run_round(there, state)
    # seconds besides training: the mean of a late answer and of a quick one
    assert state.measured[3][1] > 0.15


def test_a_node_may_play_a_slower_one(tiny):
    there, here, grid = tiny(wall=WallClock(), flops=lambda assignment: 1e6)
    grid.join(103, partition_id=3, slowness=50.0)
    state = here.strategy.begin(0)
    for _ in range(2):
        state, _ = run_round(there, state)
    speeds = {client: known[0] for client, known in state.measured.items()}
    assert min(speeds, key=speeds.get) == 3


def test_a_node_that_has_become_slow_stops_by_its_own_clock_and_is_known_as_slow(tiny):
    there, here, grid = tiny(wall=WallClock(), flops=lambda assignment: 1e6 * assignment.steps)
    state = here.strategy.begin(0)
    for _ in range(3):
        state, _ = run_round(there, state)
    before = state.measured[3][0]
    grid.join(103, partition_id=3, slowness=1000.0)
    state, entry = run_round(there, state)
    steps = {client.client: client.tau for client in entry.clients}
    assert steps[3] == 1
    assert max(steps.values()) > 1
    (slow,) = (client for client in entry.clients if client.client == 3)
    today = 1e6 / slow.compute_seconds  # it is charged the one step that it did
    assert state.measured[3][0] == pytest.approx((before + today) / 2, rel=0.01)


def test_measurements_are_running_means_and_the_unknown_are_like_the_known():
    fleet = MeasuredFleet(Fleet(FLEETS["boards"], 4, 1))
    guess = fleet.guess.status(np.arange(4), 1)
    unknown = fleet.status(np.arange(4), 1)
    assert unknown.fastest == fleet.guess.fastest
    assert (unknown.speed == guess.speed).all()
    first = learned({}, [Measurement(1, flops=100.0, training=1.0, moved=50, besides=10.0)])
    second = learned(first, [Measurement(1, flops=300.0, training=1.0, moved=50, besides=12.0)])
    known = fleet.status(np.array([0, 1]), 1, 0, second)
    assert known.devices == ("unknown", "measured")
    assert known.speed.tolist() == [200.0, 200.0]
    assert known.overhead.tolist() == [
        11.0,
        11.0,
    ]  # as long as the bytes are the same, all is taken to be fixed
    assert np.isinf(known.upload).all()
    assert known.fastest == 200.0
    assert len(fleet) == 4
    assert first == {1: (100.0, 10.0, 50.0, 0.0, 0.0)}  # what was known before has not changed
    assert second == {1: (200.0, 11.0, 50.0, 0.0, 0.0)}


def test_a_client_that_boasts_does_not_make_the_others_narrow():
    fleet, costs = MeasuredFleet(Fleet(FLEETS["boards"], 4, 1)), Costs(*[np.array([1.0, 4.0, 9.0, 16.0])] * 4)
    measured = [Measurement(n, 1e6, training, 50, 10.0) for n, training in enumerate((1.0, 2.0, 1e-9))]
    known = fleet.status(np.arange(4), 1, 0, learned({}, measured))
    # the unknown one is like most others
    assert known.speed.tolist() == pytest.approx([1e6, 5e5, 4.8e6, 1e6])
    assert known.fastest == 2e6
    assert widths_afforded(known, costs, "shared").tolist() == [2, 2, 4, 2]


@pytest.mark.parametrize("liars", range(1, 5))
def test_several_clients_that_boast_do_not_make_the_others_narrow_either(liars):
    fleet = MeasuredFleet(Fleet(FLEETS["boards"], 10, 1))
    honest = fleet.guess.speed_of(np.arange(10)) * 7  # real machines are not as fast as was guessed
    said = honest.copy()
    said[np.argsort(honest)[:liars]] = 1e15  # the slowest lie most
    seconds = [Measurement(n, speed, 1.0, 50, 10.0) for n, speed in enumerate(said)]
    known = fleet.status(np.arange(10), 1, 0, learned({}, seconds))
    assert known.fastest <= 5 * np.median(said) <= 5 * honest.max()
    assert known.speed.max() <= 5 * honest.max()
    others = np.argsort(honest)[liars:]
    assert known.speed[others].tolist() == honest[others].tolist()


def test_what_a_byte_takes_shows_when_there_are_more_of_them_and_is_forgotten():
    fleet = MeasuredFleet(Fleet(FLEETS["boards"], 1, 1))

    def notes(*sizes, fixed=5.0):
        return [Measurement(0, 1.0, 1.0, moved, besides=fixed + moved / 50) for moved in sizes]

    before = learned({}, notes(100, 300, 200, 100))
    known = fleet.status(np.array([0]), 1, 0, before)
    assert known.upload.tolist() == known.download.tolist() == pytest.approx([50.0], rel=0.1)
    assert known.overhead.tolist() == pytest.approx([5.0], rel=0.1)
    load = load_of(known, np.array([1]), Costs(np.ones(1), np.ones(1), np.array([30]), np.array([70])))
    assert load.transfer.tolist() == pytest.approx([7.0], rel=0.1)
    after = learned(before, notes(*[100] * 60, fixed=8.0))  # nothing varies any more
    assert fleet.status(np.array([0]), 1, 0, after).overhead.tolist() == pytest.approx([10.0])
    faster = learned(after, [Measurement(0, 1.0, 1.0, moved=10**6, besides=0.0)])
    assert np.isinf(fleet.status(np.array([0]), 1, 0, faster).upload).all()  # with more: bytes cost nothing


def test_what_is_known_of_clients_that_there_are_not_is_refused():
    fleet = MeasuredFleet(Fleet(FLEETS["boards"], 2, 1))
    with pytest.raises(RunFolderError, match="knows client 7, but there are only 2"):
        fleet.status(np.arange(2), 1, 0, {7: (1.0, 1.0, 1.0, 0.0, 0.0)})


def test_what_was_measured_is_handed_out_once_also_when_it_came_before_the_round(world):
    clock, plan = WallClock(), [world.assignment(0), world.assignment(1)]
    late, quick = Measurement(1, 1e6, 2.0, 50, 9.0), Measurement(0, 1e6, 1.0, 50, 1.0)
    clock.note(late)
    clock.absent(plan, 2)
    clock.note(quick)
    assert clock.elapse(plan, 2).measured == (late, quick)
    assert clock.elapse(plan, 2).measured == ()


def test_what_an_abandoned_attempt_measured_counts(tiny):
    there, here, grid = tiny(wall=WallClock(deadline=0.5), flops=lambda assignment: 1e6)
    there = replace(there, policy=Policy(at_least=6, attempts=20))
    grid.instead[103] = lambda message: (
        None
        if message.metadata.message_type == MessageType.TRAIN
        and len(grid.delivered) <= 12  # who are you, and the first task
        else grid.answer(message)
    )
    state, entry = run_round(there, here.strategy.begin(0))
    assert len(entry.abandoned) >= 1
    assert [c.device for c in entry.clients if c.client != 3] == ["measured"] * 5
    assert set(state.measured) == set(range(6))


def test_a_deadline_by_the_plan_waits_until_all_of_it_was_measured(world):
    clock = WallClock(deadline_factor=1e-9)
    for device, late in (("unknown", False), ("measured", True)):
        clock.absent([replace(world.assignment(), device=device)], 1)
        time.sleep(0.01)
        assert (clock.over(0) is not None) == late


# the app


@pytest.fixture
def nodes():
    grid = LocalGrid(flower_app.client_app)
    for client in range(4):
        grid.join(client + 10, partition_id=client)
    return grid


def init(folder, *options, seeded=True):
    """Write an app."""
    settings = ["federation.clients=4", "federation.cohort=2", "federation.rounds=2", "training.device=cpu"]
    settings += ["seed=0"] if seeded else []
    words = ["flower", "init", str(folder), *options, *(w for s in settings for w in ("--set", s))]
    done = command_line.heroes(*words)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def app(tmp_path, monkeypatch):
    """The folder that `heroes flower init` writes, where Flower would put it."""
    init(tmp_path / "app")
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[superlink]\n")  # as in the folder of Flower's own settings
    again = command_line.heroes("flower", "init", str(tmp_path / "app"))
    assert (again.returncode, "already" in again.stderr) == (2, True)
    return tmp_path / "app"


def test_the_app_runs_in_real_time_goes_on_and_hands_out_the_model(nodes, tmp_path, monkeypatch):
    init(tmp_path / "app", "--set", "model.norm=batch")  # of which every node gets the statistics
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    monkeypatch.chdir(tmp_path)
    nodes.join(11, partition_id=1, model_out=str(tmp_path / "one.safetensors"), width=2)
    nodes.join(12, partition_id=2, model_out=str(tmp_path / "two.safetensors"))
    settings = {"out": str(tmp_path / "run"), "rounds": 2}
    first = flower_app.lead(settings, NOTHING, nodes)
    assert [record.clock for record in first.records] == ["wall", "wall"]
    for name, width in (("one", 2), ("two", None)):
        kept = load_file(tmp_path / f"{name}.safetensors")
        assert all(torch.equal(kept[key], value) for key, value in first.model(width).state_dict().items())
    more = flower_app.lead({**settings, "rounds": 3}, NOTHING, nodes)
    assert [record.round for record in more.records] == [1, 2, 3]
    assert more.records[2].seconds > more.records[1].seconds == first.records[1].seconds
    assert first.state.measured
    assert more.state.measured.keys() >= first.state.measured.keys()  # also of those who were not asked again
    with pytest.raises(ConfigError, match=r"engine\.clock cannot change"):
        heroes.resume(tmp_path / "run", {"engine.clock": "virtual", "federation.rounds": 9})


def test_the_seed_stays_on_the_server(nodes, tmp_path, monkeypatch):
    init(tmp_path / "app", seeded=False)
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    settings = {"out": str(tmp_path / "run"), "rounds": 1}
    seed = flower_app.lead(settings, NOTHING, nodes).config.seed
    assert seed > 2**32
    travelled = [values_of(message.content) for message in nodes.delivered]
    travelled += [file.read_text() for file in (tmp_path / "app").iterdir() if file.is_file()]
    assert not [text for text in travelled if str(seed) in str(text)]
    assert flower_app.lead({**settings, "rounds": 2}, NOTHING, nodes).config.seed == seed


def test_an_app_tells_of_its_round_while_it_goes_on(app, nodes, tmp_path, monkeypatch):
    nodes.join(11, partition_id=1)
    nodes.join(12, partition_id=2)
    told = []
    monkeypatch.setattr("heroes.runs.trackers.Live.answered", lambda self, client, lost: told.append(client))
    done = flower_app.lead(
        {"config": "config.toml", "out": str(tmp_path / "run"), "rounds": 1}, NOTHING, nodes
    )
    assert sorted(told) == sorted(client.client for client in done.records[0].clients)


def test_an_app_with_privacy_draws_from_the_system_unless_told_otherwise(tmp_path):
    private = ["--set", "privacy.noise=1.0", "--set", "strategy.pace=constant"]
    for name, options, source in (("a", [], "system"), ("b", ["--set", "privacy.source=seed"], "seed")):
        init(tmp_path / name, *private, *options)
        assert f'source = "{source}"' in (tmp_path / name / "config.toml").read_text()


def test_a_width_that_there_is_not_is_said_at_the_end(app, nodes, tmp_path):
    nodes.join(11, partition_id=1, model_out=str(tmp_path / "one.safetensors"), width=9)
    with pytest.raises(TrainingError, match="client 1 wants width 9"):
        flower_app.lead({"out": str(tmp_path / "run"), "rounds": 1}, NOTHING, nodes)


def test_an_app_without_its_configuration_says_so(nodes, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        flower_app.lead({"out": str(tmp_path / "run"), "config": "nowhere.toml"}, NOTHING, nodes)


def test_a_model_and_data_of_ones_own_stay_with_the_nodes(tmp_path, monkeypatch):
    init(tmp_path / "clouds", "--own")
    monkeypatch.syspath_prepend(str(tmp_path / "clouds"))
    own = importlib.import_module("own_app")
    asked = []
    parts = replace(own.parts, data=lambda client: asked.append(client) or own.own_parts.data(client))
    grid = LocalGrid(parts.client_app())
    for client in range(3):
        grid.join(client + 10, partition_id=client)
    settings = {"out": str(tmp_path / "run"), "rounds": 2}
    first = flower_app.lead(settings, parts, grid)
    more = flower_app.lead({**settings, "rounds": 6}, parts, grid)
    assert set(asked) == {None, 0, 1, 2}
    assert (first.config.experiment, first.config.model.name, first.config.data.name) == (
        "clouds",
        "own",
        "own",
    )
    assert [client.samples for record in more.records for client in record.clients] == [400] * 12
    assert more.records[-1].accuracy > 0.4  # of four classes, in six short rounds
    assert not more.records[-1].missing


def test_data_of_ones_own_that_is_none_is_refused(app, tmp_path):
    with pytest.raises(ConfigError, match="needs a model of your own, or classes"):
        flower_app.Parts(data=lambda client: None)
    parts = flower_app.Parts(data=lambda client: [1, 2], classes=10)
    with pytest.raises(ConfigError, match=r"data\(None\) gave a list"):
        flower_app.lead({"out": str(tmp_path / "run")}, parts, LocalGrid(parts.client_app()))


def test_a_named_model_takes_data_of_ones_own(app, tmp_path, world):
    digits = heroes.data.load("digits", heroes.data.DataOptions())
    parts = flower_app.Parts(data=lambda client: digits.test if client is None else digits.train, classes=10)
    grid = LocalGrid(parts.client_app())
    for client in range(2):
        grid.join(client, partition_id=client)
    run = flower_app.lead({"out": str(tmp_path / "run"), "rounds": 1}, parts, grid)
    assert (run.config.model.name, run.config.data.name) == ("digits_cnn", "own")
    assert not run.records[0].missing


# the command line


def test_own_models_and_data_are_refused_in_the_simulation(world):
    config = recipe("digits", None).changed({**SMALL, "engine.name": "flower", "model.max_width": 3})
    with pytest.raises(ConfigError, match="its simulation has no model or data of your own"):
        heroes.run(config, model=world.family().build, data=world.data(8))


def test_without_flower_one_sentence_says_what_to_install():
    code = "import sys; sys.modules['flwr'] = None; from heroes.cli import main; main()"
    command = [sys.executable, "-c", code, "run", "digits", "--engine", "flower"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(240))
    assert done.returncode == 2
    assert done.stderr.startswith("error: Flower is not there")
    assert "heroes-fl[flower]" in done.stderr


@pytest.mark.timeout(600)  # more than all that it waits for
def test_ctrl_c_ends_everything(tmp_path):
    command = [sys.executable, "-m", "heroes.cli", "run", "digits", "--engine", "flower", "--rounds", "5000"]
    small = [
        word
        for key, value in {**SMALL, "federation.rounds": 5000}.items()
        for word in ("--set", f"{key}={value}")
    ]
    process = subprocess.Popen(
        [*command, *small, "--out", str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        records, deadline = tmp_path / "run" / "records.jsonl", time.monotonic() + patience(200)
        while (
            not (records.exists() and records.stat().st_size)
            and time.monotonic() < deadline
            and process.poll() is None
        ):
            time.sleep(0.2)
        assert process.poll() is None, process.communicate()[1]
        left = descendants(process.pid)
        assert left
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=patience(240))[1].splitlines()
        assert process.returncode == 130
        assert said[-1].startswith("interrupted; to go on: heroes resume")
        progress = (
            "digits/heroes round",
            "waiting for nodes",
            "client ",
        )  # if busy, clients move
        assert all(line.startswith(progress) for line in said[:-1]), said
        deadline = time.monotonic() + patience(60)
        while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not [pid for pid in left if Path(f"/proc/{pid}").exists()]
    finally:
        for pid in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


ABANDONED = """
import sys, time
from flwr.app import Message, MessageType
from heroes.transport.engines.flower.grids import simulated
from heroes.transport.engines.flower.messages import content

def slow(text, client):
    time.sleep(3600)

with simulated(1, slow, workers=1) as link:
    while not (nodes := list(link.grid.get_node_ids())):
        time.sleep(0.1)
    link.grid.push_messages([Message(content({"config": "x"}), nodes[0], MessageType.QUERY)])
    time.sleep(5)  # a process of Ray takes it up, or still starts
    print("leaving", flush=True)
    sys.exit(130)
"""


@pytest.mark.timeout(600)
def test_nobody_waits_for_a_client_of_a_simulation_that_is_given_up():
    command = [sys.executable, "-c", ABANDONED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout.readline() == "leaving\n"
            assert process.wait(patience(120)) == 130
        finally:
            for pid in [process.pid, *descendants(process.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def descendants(parent: int) -> list[int]:
    """All living processes below one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, above, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(above)
    found, new = [], [parent]
    while new:
        new = [pid for pid, above in parents.items() if above in new]
        found += new
    return found
