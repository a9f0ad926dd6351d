"""Oort: who is chosen, by hand; what clients tell; and that it serves other strategies too."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heroes.client.optimisers import Sgd
from heroes.client.training import LocalSettings, Trainer
from heroes.contracts import Outcome
from heroes.errors import ConfigError
from heroes.federation import Stop
from heroes.messages import Plan, ServerState, Task
from heroes.planning.oort import Oort
from heroes.rounds import run
from heroes.settings.config import Config
from heroes.slices.cuts import cut_out

NOBODY = ServerState(0, {}, None)


def remembering(seen, rounds, percentile=100.0):
    """The state after so many rounds, with rows of utility, seconds and last round by client."""
    memory = {
        "seen": {str(client): row for client, row in seen.items()},
        "percentile": percentile,
        "sums": [],
    }
    return replace(NOBODY, round=rounds, sampler=memory)


def chosen(sampler, state, candidates, wanted, seed=0):
    rng = np.random.default_rng(seed)
    return sorted(sampler.sample(state, np.array(candidates), wanted, rng).tolist())


def test_scores_by_hand():
    rows = np.array([[10.0, 1.0, 1.0], [2.0, 1.0, 4.0], [6.0, 4.0, 4.0]])
    sampler = Oort(clip=1.0, penalty=2.0)
    found = sampler.scores(rows, 5, percentile=50.0)  # the limit is 1 second
    base, spread = 0.999 * 2, 10 - 0.999 * 2
    fresh = [math.sqrt(0.1 * math.log(5) / last) for last in (1, 4, 4)]
    assert found.tolist() == pytest.approx(
        [
            (10 - base) / spread + fresh[0],
            (2 - base) / spread + fresh[1],
            ((6 - base) / spread + fresh[2]) * (1 / 4) ** 2,
        ]
    )
    assert sampler.scores(rows, 5, percentile=100.0)[2] == pytest.approx((6 - base) / spread + fresh[2])
    clipped = Oort(clip=0.5).scores(rows, 5, percentile=100.0)  # 10 counts as 6, the median
    assert clipped[0] - fresh[0] == pytest.approx(clipped[2] - fresh[2]) == pytest.approx(1.0)


def test_at_first_anyone_then_a_shrinking_share_goes_to_those_never_seen():
    sampler = Oort()
    assert len(set(chosen(sampler, NOBODY, range(20), 10))) == 10
    seen = {client: [1.0, 1.0, 1.0] for client in range(50)}
    for rounds, explored in ((1, 9), (20, 7), (200, 2)):
        found = chosen(sampler, remembering(seen, rounds), range(100), 10)
        assert (len(found), sum(client >= 50 for client in found)) == (10, explored)


def test_when_nobody_is_left_to_explore_all_places_go_to_the_seen_and_the_other_way_round():
    seen = {client: [1.0, 1.0, 1.0] for client in range(4)}
    assert chosen(Oort(), remembering(seen, 1), range(4), 4) == [0, 1, 2, 3]
    assert chosen(Oort(exploration=0.0, exploration_least=0.0), remembering({}, 5), range(4), 3) != []
    few = Oort(exploration=0.0, exploration_least=0.0)
    assert len(chosen(few, remembering({0: [1.0, 1.0, 1.0]}, 5), range(6), 4)) == 4


def test_useful_clients_are_preferred_and_slow_ones_held_back():
    sampler = Oort(exploration=0.0, exploration_least=0.0)
    seen = {client: [100.0 if client < 5 else 1.0, 1.0, 3.0] for client in range(20)}
    assert chosen(sampler, remembering(seen, 9), range(20), 5) == [0, 1, 2, 3, 4]
    slow = {client: [row[0], 50.0 if client == 0 else 1.0, 3.0] for client, row in seen.items()}
    assert 0 not in chosen(sampler, remembering(slow, 9, percentile=50.0), range(20), 5)
    assert 0 in chosen(replace(sampler, penalty=0.0), remembering(slow, 9, percentile=50.0), range(20), 5)


def test_it_remembers_what_clients_told_and_when(world):
    sampler = Oort()
    plan = Plan((world.assignment(3), world.assignment(8)))
    outcomes = [
        Outcome(3, 40, 0.5, 2.5, {"utility": 7.0}),
        Outcome(8, 10, 0.5, 1.5),
        Outcome(9, 10, None, 1.0),
    ]
    memory = sampler.remember(replace(NOBODY, round=4), plan, outcomes)
    assert memory["seen"] == {"3": [7.0, 2.5, 5], "8": [5.0, 1.5, 5], "9": [0.0, 1.0, 5]}
    assert memory["sums"] == [0]  # nobody was chosen for its utility yet
    again = sampler.remember(replace(NOBODY, round=5, sampler=memory), plan, outcomes[:1])
    assert (again["seen"]["3"], again["sums"]) == ([7.0, 2.5, 6], [0, 7.0])
    assert memory["seen"]["3"] == [7.0, 2.5, 5]  # what was before is not changed


@pytest.mark.parametrize(
    ("before", "now", "rounds", "wanted"),
    [
        (10.0, 10.5, 4, 35.0),  # it has stopped growing: slower clients may come
        (10.0, 14.0, 4, 30.0),
        (1.0, 9.0, 4, 25.0),
        (10.0, 10.5, 3, 30.0),  # not the round for it
    ],
)
def test_the_pacer(before, now, rounds, wanted):
    sampler = Oort(pacer_rounds=2)
    assert sampler.paced(30.0, [before / 2] * 2 + [now / 2] * 2, rounds) == wanted
    assert sampler.paced(30.0, [before] * 3, 4) == 30.0  # too early


def test_a_client_tells_the_losses_of_its_first_pass_times_its_examples(world):
    strategy, data = world.strategy("fedavg"), world.data()
    local = LocalSettings(batch_size=4, train_in="dense", probes=0, utility=True, optimiser=Sgd(0.0))
    trainer, share = Trainer(strategy.family, local), data.shares[2]
    tensors = cut_out(strategy.begin(0).tensors, strategy.cut(strategy.selection(3)))
    still = world.assignment(selection=strategy.selection(3), tau=9, learning_rate=1e-12)
    assert len(share) == 10  # two batches of 4 are a pass
    told = trainer.train(Task(still, tensors, 5), data.train, share).measured["utility"]
    model = strategy.family.dense(3)
    model.load(tensors)
    rng = np.random.default_rng(5)
    first = np.concatenate([rng.permutation(share)[:8]])
    inputs, targets = data.train.batch(first, torch.device("cpu"))
    losses = F.cross_entropy(model(inputs).detach(), targets, reduction="none")
    assert told == pytest.approx(10 * float(losses.square().mean().sqrt()), rel=1e-4)
    short = trainer.train(Task(replace(still, tau=1), tensors, 5), data.train, share).measured["utility"]
    assert short == pytest.approx(4 * float(losses[:4].square().mean().sqrt()), rel=1e-4)


def test_it_is_fedavg_with_another_choice_and_any_strategy_may_choose_so(world):
    oort, fedavg = (
        [entry for _, entry in run(world.assembled(name, changes), Stop(4))]
        for name, changes in (("oort", {}), ("fedavg", {"federation.sampler": "oort"}))
    )
    assert [entry.clients for entry in oort] == [entry.clients for entry in fedavg]
    uniform = [entry for _, entry in run(world.assembled("fedavg"), Stop(4))]
    assert [e.clients for e in oort] != [e.clients for e in uniform]
    *_, (state, _) = run(world.assembled("heroes", {"federation.sampler": "oort"}), Stop(2))
    assert all(row[0] > 0 for row in state.sampler["seen"].values())


def test_all_settings_reach_the_sampler(world):
    sampler = world.strategy("oort", cutoff=0.5, penalty=1.0, pacer_rounds=7).sampler()
    assert sampler == Oort(cutoff=0.5, penalty=1.0, pacer_rounds=7)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy.noise": 1.0}, "privacy.noise is 1.0: its accountant covers clients drawn uniformly"),
        ({"federation.sampler": "uniform"}, "'oort', which needs federation.sampler = 'oort', not 'uniform'"),
    ],
)
def test_what_it_cannot_do_is_refused(world, changes, said):
    with pytest.raises(ConfigError, match=said):
        world.assembled("oort", changes)


def test_it_leaves_with_its_sampler() -> None:
    assert Config().with_strategy("oort").with_strategy("fedavg").federation.sampler == "uniform"
