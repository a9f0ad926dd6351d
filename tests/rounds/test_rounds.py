"""The spine of a run: records that add up, reasons to stop, and the same again from the same seed."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from heroes.federation import Policy, Stop
from heroes.fleet.clock import FixedClock
from heroes.messages import Lost, RoundRecord, Score, Update
from heroes.rounds import run, run_round
from heroes.transport.engines.in_process import FunctionEngine

ENTRY = RoundRecord(
    round=5,
    seconds=50.0,
    duration=10.0,
    waiting=1.0,
    bytes_up=10,
    bytes_down=20,
    traffic=150,
    learning_rate=0.1,
    loss=0.7,
    missing=(),
    clients=(),
    scores={"accuracy": 0.6},
)
ERROR = replace(ENTRY, metric="rmse", lower_is_better=True, scores={"rmse": 0.6})


def echo(task, value=None, loss=0.5):
    """A client that sends back what it got, or one value everywhere."""
    tensors = {name: t if value is None else torch.full_like(t, value) for name, t in task.tensors.items()}
    return Update(
        task.assignment.client,
        task.assignment.round,
        tensors,
        10,
        loss,
        nonce=task.assignment.nonce,
    )


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (Stop(6), None),
        (Stop(5), "rounds"),
        (Stop(4), "rounds"),
        (Stop(9, seconds=50.1), None),
        (Stop(9, seconds=50.0), "time budget"),
        (Stop(9, traffic=151), None),
        (Stop(9, traffic=150), "traffic budget"),
        (Stop(9, accuracy=0.61), None),
        (Stop(9, accuracy=0.6), "target accuracy"),
        (Stop(9, loss=0.69), None),
        (Stop(9, loss=0.7), "target loss"),
        (Stop(5, seconds=1.0, traffic=1, accuracy=0.1, loss=9.0), "target accuracy"),  # the good news first
    ],
)
def test_why_a_run_ends(stop, reason):
    assert stop.reason(ENTRY, [ENTRY, ENTRY]) == reason


@pytest.mark.parametrize(
    ("target", "entry", "reason"),
    [
        (0.6, ENTRY, "target accuracy"),
        (0.61, ENTRY, None),
        (0.6, ERROR, "target rmse"),
        (0.59, ERROR, None),
        (0.61, ERROR, "target rmse"),
    ],
)
def test_a_target_for_the_main_metric_knows_its_direction(target, entry, reason):
    assert Stop(9, target=target).reason(entry, [entry, entry]) == reason


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([0.6], None),
        ([0.9, 0.9], None),
        ([0.5, 0.6, 0.7], "target accuracy"),
        ([0.5, 0.6, 0.69], None),  # its last test alone would be enough
        ([0.5, None, 0.6, 0.7], "target accuracy"),
        ([0.6, 0.6, 0.6, None], None),  # not tested in this round
        ([0.9, 0.9, 0.9, 0.1, 0.7], None),
    ],
)
def test_a_target_is_reached_by_the_mean_of_the_last_three_tests(scores, reason):
    rows = [replace(ENTRY, scores={} if score is None else {"accuracy": score}) for score in scores]
    for stop in (Stop(9, accuracy=0.6), Stop(9, target=0.6)):
        assert stop.reason(rows[-1], rows[:-1]) == reason
    errors = [replace(ERROR, scores={} if score is None else {"rmse": 1.2 - score}) for score in scores]
    assert Stop(9, target=0.6).reason(errors[-1], errors[:-1]) == (reason and "target rmse")


@pytest.mark.parametrize(
    ("scores", "patience", "reason"),
    [
        ([0.6], 1, None),  # nothing to compare with
        ([0.6, 0.6], 1, "no better for 1 test"),  # as good is no better
        ([0.6, 0.61], 1, None),
        ([0.6, 0.5, 0.55], 2, "no better for 2 tests"),  # better than the last, but not than the best
        ([0.6, 0.5, 0.55], 3, None),
        ([0.6, None, 0.5, None, 0.4], 2, "no better for 2 tests"),
        ([0.6, 0.5, 0.5, None], 2, None),  # not tested in this round
        ([0.6, 0.5, 0.5, 0.7], 2, None),
    ],
)
def test_a_run_that_gets_no_better_ends(scores, patience, reason):
    rows = [replace(ENTRY, scores={} if score is None else {"accuracy": score}) for score in scores]
    assert Stop(9, patience=patience).reason(rows[-1], rows[:-1]) == reason
    errors = [replace(ERROR, scores={} if score is None else {"rmse": -score}) for score in scores]
    assert Stop(9, patience=patience).reason(errors[-1], errors[:-1]) == reason


def test_patience_looks_back_on_the_whole_run(world):
    """An echo never gets better, and its best test lies further back than a target would look."""
    federation = world.federation(engine=FunctionEngine(echo), clock=FixedClock(1.5))
    *_, (_, last) = run(federation, Stop(50, patience=5))
    assert (last.round, last.stopped) == (6, "no better for 5 tests")


def test_targets_that_were_not_measured_do_not_end_a_run():
    tested = [ENTRY] * 3
    assert Stop(9, accuracy=0.0, loss=9.0).reason(replace(ENTRY, scores={}, loss=None), tested) is None
    assert Stop(9, target=0.0).reason(replace(ENTRY, scores={}), tested) is None


@pytest.mark.parametrize(
    ("stop", "rounds", "reason"),
    [
        (Stop(2), 2, "rounds"),
        (Stop(50, seconds=4.5), 3, "time budget"),
        (Stop(50, accuracy=0.0), 3, "target accuracy"),
        (Stop(50, loss=0.5), 1, "target loss"),
    ],
)
def test_a_run_ends_with_the_round_that_meets_its_stop(world, stop, rounds, reason):
    entries = [
        entry for _, entry in run(world.federation(engine=FunctionEngine(echo), clock=FixedClock(1.5)), stop)
    ]
    assert [entry.round for entry in entries] == list(range(1, rounds + 1))
    assert [entry.stopped for entry in entries] == [None] * (rounds - 1) + [reason]


def test_a_traffic_budget_ends_a_run_in_the_round_that_spends_it(world):
    free = [entry.traffic for _, entry in run(world.federation(engine=FunctionEngine(echo)), Stop(4))]
    entries = [
        entry
        for _, entry in run(world.federation(engine=FunctionEngine(echo)), Stop(50, traffic=free[1] + 1))
    ]
    assert [entry.traffic for entry in entries] == free[:3]
    assert entries[-1].stopped == "traffic budget"


def test_accuracy_is_measured_when_due_and_always_at_the_end_for_every_width(world):
    federation = world.federation(engine=FunctionEngine(echo))
    pairs = list(run(federation, Stop(5), evaluate_every=2))
    assert [entry.accuracy is not None for _, entry in pairs] == [False, True, False, True, True]
    assert [set(entry.scores_by_width) for _, entry in pairs] == [set()] * 4 + [{1, 2, 3}]
    state, last = pairs[-1]
    assert last.accuracy == last.score == last.score_by_width[3] == federation.score(state, 3)().accuracy
    assert last.test_loss == federation.score(state, 3)().loss
    (_, alone), *_ = run(federation, Stop(1), every_width=False)
    assert alone.scores_by_width == {}


def growing(done=0):
    """Scores of 0.1, 0.2, 0.3 and so on, test by test, after some that are done."""
    numbers = count(done + 1)
    return FunctionEngine(echo, lambda tensors, width: Score(1.0, {"accuracy": next(numbers) / 10}))


def test_a_run_that_goes_on_counts_the_tests_before(world):
    """The mean of three reaches 0.4 with the test of 0.5, wherever the run is interrupted before."""
    stop = Stop(50, accuracy=0.4)
    pairs = list(run(world.federation(engine=growing()), stop, every_width=False))
    assert [entry.accuracy for _, entry in pairs] == [0.1, 0.2, 0.3, 0.4, 0.5]
    for number in range(1, 5):
        state, done = pairs[number - 1][0], [entry for _, entry in pairs[:number]]
        federation = world.federation(engine=growing(number))
        rest = [entry for _, entry in run(federation, stop, every_width=False, after=state, done=done)]
        assert [(entry.round, entry.stopped) for entry in rest] == [
            (entry.round, entry.stopped) for _, entry in pairs[number:]
        ]


def test_with_a_sample_rounds_are_tested_on_it_and_the_end_on_everything(world):
    """The engine says 0.5 on the sample and 0.75 on the whole test set."""

    class Sampling(FunctionEngine):
        def score(self, tensors, width, *, sample=False):
            return lambda: Score(1.0, {"accuracy": 0.5 if sample else 0.75})

    federation = replace(world.federation(engine=Sampling(echo)), sampled=True)
    entries = [entry for _, entry in run(federation, Stop(3))]
    assert [entry.accuracy for entry in entries] == [0.5, 0.5, 0.5]
    assert entries[-1].score_by_width == {1: 0.75, 2: 0.75, 3: 0.75}
    assert entries[-1].final_scores == {"accuracy": 0.75}
    assert entries[0].final_scores == {"accuracy": 0.5}
    *_, (_, last) = run(federation, Stop(2), every_width=False)
    assert last.score_by_width == {3: 0.75}


def test_a_score_that_cannot_be_written_down_is_left_out(world):
    engine = FunctionEngine(echo, lambda tensors, width: Score(1.0, {"accuracy": float("nan")}))
    ((_, entry),) = run(world.federation(engine=engine), Stop(1))
    assert (entry.scores, entry.score, entry.test_loss) == ({}, None, 1.0)


class Diary(FunctionEngine):
    """Writes down what it is asked for; training fails in one round if told so."""

    def __init__(self, fails=None):
        super().__init__(self._told, lambda tensors, width: Score(1.0, {"accuracy": 0.25}))
        self.lines, self.fails = [], fails

    def _told(self, task):
        if task.assignment.round == self.fails:
            raise KeyboardInterrupt
        return echo(task)

    def run(self, plan, make_task):
        self.lines.append(f"train {plan[0].round}")
        return super().run(plan, make_task)

    def score(self, tensors, width):
        self.lines.append("test")
        found = super().score(tensors, width)
        return lambda: self.lines.append("asked") or found()


def test_a_model_is_tested_beside_the_next_round_and_records_keep_their_order(world):
    engine = Diary()
    entries = [entry for _, entry in run(world.federation(engine=engine), Stop(3), every_width=False)]
    assert engine.lines == [
        "train 1",
        "test",
        "train 2",
        "asked",
        "test",
        "train 3",
        "asked",
        "test",
        "asked",
    ]
    assert [(entry.round, entry.accuracy) for entry in entries] == [(1, 0.25), (2, 0.25), (3, 0.25)]


def test_a_model_whose_accuracy_may_end_the_run_is_tested_at_once(world):
    engine = Diary()
    list(run(world.federation(engine=engine), Stop(2, accuracy=0.9), every_width=False))
    assert engine.lines == ["train 1", "test", "asked", "train 2", "test", "asked"]


def test_a_round_is_handed_out_with_its_accuracy_when_the_next_is_interrupted(world):
    steps = run(world.federation(engine=Diary(fails=3)), Stop(5))
    assert [next(steps)[1].accuracy for _ in range(2)] == [0.25, 0.25]
    with pytest.raises(KeyboardInterrupt):
        next(steps)


def test_a_record_adds_up(world):
    pairs = list(run(world.federation(), Stop(3)))
    seconds = up = down = 0
    for state, entry in pairs:
        finished = [c.compute_seconds + c.transfer_seconds for c in entry.clients]
        seconds, up, down = seconds + entry.duration, up + entry.bytes_up, down + entry.bytes_down
        assert entry.duration == pytest.approx(max(finished))
        assert [c.waiting for c in entry.clients] == pytest.approx([max(finished) - f for f in finished])
        assert entry.waiting == pytest.approx(np.mean([c.waiting for c in entry.clients]))
        assert entry.bytes_up == sum(c.bytes_up for c in entry.clients)
        assert entry.bytes_down == sum(c.bytes_down for c in entry.clients)
        assert entry.traffic == up + down
        assert entry.loss == pytest.approx(np.mean([c.loss for c in entry.clients]))
        assert entry.seconds == pytest.approx(seconds)
        assert (state.round, state.seconds) == (entry.round, entry.seconds)
        assert (state.bytes_up, state.bytes_down) == (up, down)
        assert entry.facts["reducing_error"] == max(entry.facts["reducing_errors"])
        assert entry.missing == ()


def test_samples_and_losses_in_the_record_are_those_of_each_client(world):
    engine = FunctionEngine(
        lambda task: replace(
            echo(task, loss=float(task.assignment.client)), samples=task.assignment.client + 1
        )
    )
    federation = world.federation(engine=engine)
    _, entry = run_round(federation, federation.strategy.begin(0))
    assert [(c.loss, c.samples) for c in entry.clients] == [
        (float(c.client), c.client + 1) for c in entry.clients
    ]
    assert entry.loss == np.mean([c.client for c in entry.clients])


def test_clients_that_never_answer_leave_the_model_as_it_was(world):
    federation = replace(
        world.federation(engine=FunctionEngine(lambda task: None)), policy=Policy(at_least=0)
    )
    begun = federation.strategy.begin(0)
    state, entry = run_round(federation, begun)
    assert all(torch.equal(state.tensors[name], value) for name, value in begun.tensors.items())
    assert entry.missing == tuple(Lost(c.client, "no answer", "silent") for c in entry.clients)
    assert entry.lost == {"silent": 4}
    assert entry.loss is None
    assert [(c.loss, c.samples, c.bytes_up, c.waiting) for c in entry.clients] == [(None, None, 0, 0.0)] * 4
    assert (entry.bytes_up, entry.waiting, entry.facts["reducing_error"]) == (0, 0.0, 0.0)
    assert state.memory.counters == (0,) * 9
    assert state.round == 1
    after, again = run_round(federation, state)  # and the next round still works
    assert (after.round, again.facts["rule"]) == (2, "no estimates")


def test_a_client_whose_numbers_turned_nan_is_recorded_and_kept_out(world):
    federation = world.federation()
    begun = federation.strategy.begin(0)
    _, calm = run_round(federation, begun)
    broken = calm.clients[1].client

    def answer(task):
        nan = task.assignment.client == broken
        return echo(task, value=math.nan if nan else 1.0, loss=math.nan if nan else 0.5)

    state, entry = run_round(world.federation(engine=FunctionEngine(answer)), begun)
    assert [(lost.client, lost.cause) for lost in entry.missing] == [(broken, "finite")]
    assert entry.lost == {"finite": 1}
    assert entry.loss == 0.5
    assert all(torch.isfinite(value).all() for value in state.tensors.values())
    assert state.tensors["2.weight.basis"].unique().tolist() == [1.0]


def test_a_round_changes_no_state_it_was_given(world):
    federation = world.federation()
    begun = federation.strategy.begin(0)
    kept = {name: value.clone() for name, value in begun.tensors.items()}
    run_round(federation, begun)
    assert all(torch.equal(begun.tensors[name], value) for name, value in kept.items())
    assert (begun.round, begun.seconds, begun.memory.counters) == (0, 0.0, (0,) * 9)


def test_the_same_seed_gives_the_same_run_bit_for_bit(world):
    first, second = (list(run(world.federation(seed=4), Stop(4))) for _ in range(2))
    assert [entry for _, entry in first] == [entry for _, entry in second]
    one, two = first[-1][0], second[-1][0]
    assert one.memory == two.memory
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)


def test_another_seed_gives_another_run(world):
    one, two = (list(run(world.federation(seed=seed), Stop(1)))[-1] for seed in (4, 5))
    assert one[1] != two[1]
    assert not torch.equal(one[0].tensors["0.weight"], two[0].tensors["0.weight"])


def test_updates_are_not_kept_while_others_train(world):
    made: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def answer(task):
        nonlocal most
        most = max(most, sum(ref() is not None for ref in made))
        update = echo(task, value=1.0)
        made.append(weakref.ref(update.tensors["2.weight.basis"]))
        return update

    federation = world.federation(engine=FunctionEngine(answer), cohort=12)
    run_round(federation, federation.strategy.begin(0))
    assert len(made) == 12
    assert most <= 1


def test_a_federation_learns(world):
    *_, (_, last) = run(world.federation(), Stop(12), evaluate_every=100)
    assert last.accuracy > 0.9
