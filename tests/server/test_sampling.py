"""Who takes part: today's draws, samplers of one's own and what they may remember, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import heroes
from heroes import seeds
from heroes.assemble import Own, assembled, stop_rule
from heroes.errors import ConfigError, TrainingError
from heroes.federation import Stop
from heroes.messages import ServerState
from heroes.rounds import begin, run, run_round, sample
from heroes.runs import checkpoints
from heroes.server.sampling import Uniform, sampled
from heroes.transport.engines import in_process

BLANK = ServerState(0, {}, None)
SIX = np.array([2, 3, 5, 7, 11, 13])


@dataclass(frozen=True)
class Given:
    """A sampler that gives and remembers whatever it is told to."""

    gives: object = field(default_factory=lambda: [3, 2])
    memory: object = None
    name: str = "given"
    uniform: bool = False

    def sample(self, state, candidates, wanted, rng):
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives

    def remember(self, state, plan, outcomes):
        if isinstance(self.memory, Exception):
            raise self.memory
        return self.memory


@dataclass(frozen=True)
class LeastOften:
    """Takes whoever took part least often, by lot among equals; its utilities are Oort's."""

    name: str = "least_often"
    uniform: bool = False

    def sample(self, state, candidates, wanted, rng):
        seen = (state.sampler or {}).get("seen", {})
        turns = np.array([seen.get(str(client), [0])[0] for client in candidates])
        return candidates[np.lexsort((rng.random(len(candidates)), turns))][:wanted]

    def remember(self, state, plan, outcomes):
        seen = dict((state.sampler or {}).get("seen", {}))
        for one in outcomes:
            turns = seen.get(str(one.client), [0])[0] + 1
            seen[str(one.client)] = [turns, one.samples * one.loss, one.seconds, state.round + 1]
        return {"seen": seen}


def test_uniform_draws_are_those_of_numpy_in_order():
    expected = np.sort(np.random.default_rng(4).choice(6, 3, replace=False))
    assert sampled(Uniform(), BLANK, SIX, 3, np.random.default_rng(4)).tolist() == SIX[expected].tolist()
    assert sampled(Uniform(), BLANK, SIX, 9, np.random.default_rng(4)).tolist() == SIX.tolist()


def test_the_draws_of_a_round_and_of_another_attempt_stay_what_they_were(world):
    federation = world.federation(clients=50, cohort=5)
    state = replace(federation.strategy.begin(0), round=6)
    for attempt, names in ((0, ()), (3, (3,))):
        rng = seeds.stream(1, "sampling", 7, *names)
        assert (
            sample(federation, state, attempt).tolist() == np.sort(rng.choice(50, 5, replace=False)).tolist()
        )


@pytest.mark.parametrize("gives", [[3, 2], (3, 2), np.array([3, 2], np.uint8), np.array([3, 2])])
def test_any_row_of_whole_numbers_will_do(gives):
    chosen = sampled(Given(gives), BLANK, SIX, 3, np.random.default_rng(0))
    assert (chosen.tolist(), chosen.dtype) == ([2, 3], np.int64)


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (None, "gave None in round 1: those are not whole numbers in one row"),
        ([2.0, 3.0], "not whole numbers"),
        ([True, False], "not whole numbers"),
        (["a"], "not whole numbers"),
        ([[2, 3]], "not whole numbers in one row"),
        ([[2], [2, 3]], "not a list of numbers"),
        (5, "not whole numbers in one row"),
        ([], "those are 0 clients"),
        ([2, 3, 5, 7], "those are 4 clients"),
        ([2, 2], "a client is in it twice"),
        ([2, 4], "client 4 is not among the candidates"),
        ([-1], "client -1 is not among the candidates"),
        ([2**70], "not"),
        (list(range(1000)), r"gave \[0, 1, .*\.\.\. in round 1"),
    ],
)
def test_what_no_sampler_may_give_is_refused_by_name(gives, said):
    with pytest.raises(TrainingError, match=rf"^the sampler 'given' gave .*{said}|{said}") as caught:
        sampled(Given(gives), BLANK, SIX, 3, np.random.default_rng(0))
    assert "it should give from 1 to 3 different client numbers" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_sampler_that_fails_is_named():
    with pytest.raises(TrainingError, match="the sampler 'given' failed in round 1: KeyError: 'x'"):
        sampled(Given(KeyError("x")), BLANK, SIX, 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (KeyError("x"), "the sampler 'given' failed after round 1: KeyError: 'x'"),
        ({1, 2}, r"wants to remember \{1, 2\}, which cannot be written as JSON"),
        ([float("nan")], r"wants to remember \[nan\], which cannot be written as JSON"),
        ({"x": np.float32(1.0)}, "wants to remember .*; it should be None, text, finite numbers"),
    ],
)
def test_what_cannot_be_remembered_is_refused_by_name(world, memory, said):
    federation = replace(world.federation(), sampler=Given([0, 1], memory))
    with pytest.raises(TrainingError, match=said):
        run_round(federation, begin(federation))


def test_a_sampler_hears_of_those_who_answered_and_of_the_plan(world):
    heard = []

    @dataclass(frozen=True)
    class Listening(Given):
        def remember(self, state, plan, outcomes):
            heard.append((state.round, [a.client for a in plan.assignments], outcomes))
            return {"rounds": (state.round, None)}

    federation = replace(world.federation(), sampler=Listening([0, 5, 1]))
    state, entry = run_round(federation, begin(federation))
    assert state.sampler == {"rounds": [0, None]}  # as a checkpoint gives it back
    ((done, asked, outcomes),) = heard
    assert (done, asked) == (0, [0, 1, 5])
    assert [(o.client, o.samples, o.loss) for o in outcomes] == [
        (c.client, c.samples, c.loss) for c in entry.clients
    ]
    assert [o.seconds for o in outcomes] == [
        pytest.approx(c.compute_seconds + c.transfer_seconds) for c in entry.clients
    ]


def assemble(config, **own):
    with assembled(config, in_process.opened, Own(**own)) as federation:
        return federation


def small(**changes):
    wanted = {
        "federation.clients": 12,
        "federation.cohort": 4,
        "federation.rounds": 5,
        "engine.name": "in_process",
        "evaluation.every_width": False,
    }
    return heroes.recipes.digits().changed(wanted | changes)


def test_a_sampler_of_ones_own_remembers_through_a_checkpoint(tmp_path):
    config = small()
    federation = assemble(config, sampler=LeastOften())
    whole = list(run(federation, stop_rule(config), every_width=False))
    asked = [tuple(c.client for c in entry.clients) for _, entry in whole]
    assert sorted(client for cohort in asked[:3] for client in cohort) == list(range(12))
    assert set(whole[2][0].sampler["seen"]) == {str(client) for client in range(12)}
    path = checkpoints.write(tmp_path, whole[1][0])
    again = assemble(config, sampler=LeastOften())
    state = checkpoints.read(path, begin(again))
    assert state.sampler == whole[1][0].sampler
    rest = list(run(again, stop_rule(config), every_width=False, after=state))
    assert [entry for _, entry in rest] == [entry for _, entry in whole[2:]]
    assert rest[-1][0].sampler == whole[-1][0].sampler


def test_what_an_abandoned_attempt_brought_is_not_remembered(world):
    federation = replace(world.federation(), sampler=Given([0, 1], {"x": 1}))
    begun = replace(begin(federation), sampler={"x": 0})
    with pytest.raises(TrainingError, match="never had the 3 updates"):
        run_round(replace(federation, policy=replace(federation.policy, at_least=3)), begun)
    assert begun.sampler == {"x": 0}


def test_an_unknown_sampler_is_refused_with_the_choices():
    with pytest.raises(ConfigError, match=r"federation\.sampler is 'unifrom': did you mean 'uniform'"):
        assemble(small(**{"federation.sampler": "unifrom"}))


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        (Given, r"sampler is the class Given; give an object, Given\(\.\.\.\)"),
        ("uniform", "sampler is a str, which has no method 'sample'"),
        (Given(name=7), "sampler is a Given; it needs a name"),
        (Given(uniform="yes"), "sampler is a Given; it needs a name, which is text, and uniform"),
    ],
)
def test_what_is_no_sampler_is_refused(sampler, said):
    with pytest.raises(ConfigError, match=said):
        assemble(small(), sampler=sampler)


def test_privacy_refuses_a_sampler_that_its_accountant_does_not_cover():
    config = small(**{"privacy.noise": 1.0, "strategy.pace": "constant"})
    with pytest.raises(
        ConfigError, match=r"the sampler 'given' does not do; use federation\.sampler = 'uniform'"
    ):
        assemble(config, sampler=Given())
    assert assemble(config).privacy is not None
    assert next(run(assemble(config, sampler=Given(uniform=True)), Stop(1)))[1].epsilon > 0
