"""FedNova: unequal local steps, and changes that are normalised by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from heroes.errors import ConfigError
from heroes.messages import Update
from heroes.settings.config import Config
from heroes.strategies.fednova import length


def stepped(state, plan, gradient=1.0):
    """Every client moves each weight by one gradient in every step, as SGD with rate 1 would."""
    for a in plan.assignments:
        tensors = {name: value - a.tau * gradient for name, value in state.tensors.items()}
        yield a, Update(a.client, a.round, tensors, 10, 0.5)


def plan_of(world, taus, **changes):
    strategy = world.strategy("fednova", **changes)
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([4e8] * len(taus)))
    given = (replace(a, tau=tau) for a, tau in zip(plan.assignments, taus, strict=True))
    return strategy, state, replace(plan, assignments=tuple(given))


@pytest.mark.parametrize(
    ("tau", "momentum", "wanted"),
    # 1 + (1 + .9) = 2.9 for two steps; 1 + 1.5 + 1.75 for three with .5
    [(1, 0.0, 1.0), (7, 0.0, 7.0), (1, 0.9, 1.0), (2, 0.9, 2.9), (3, 0.5, 4.25), (50, 0.9, 410.46)],
)
def test_the_length_of_local_steps(tau, momentum, wanted):
    assert length(tau, momentum) == pytest.approx(wanted, abs=0.005)


def test_everyone_trains_until_the_average_client_is_done(world):
    strategy = world.strategy("fednova", tau=6, tau_max=9)
    plan = strategy.assign(strategy.begin(0), world.cohort([4e8, 1e8, 2e8]))
    assert [a.tau for a in plan.assignments] == [9, 3, 6]  # 0.18 s: 9 is the most
    assert all(a.seconds <= plan.facts["deadline"] + 1e-9 for a in plan.assignments if not a.straggler)
    assert (plan.facts["rule"], plan.facts["tau_star"]) == ("time", 6.0)


def test_the_step_is_the_mean_length_times_the_mean_of_normalised_changes(world):
    strategy, state, plan = plan_of(world, [2, 6])
    changes = {10: 4.0, 11: -6.0}  # per step 2 and -1: w + (2 + 6) / 2 * (2 - 1) / 2 = w + 2
    answers = (
        (
            a,
            Update(a.client, 1, {n: v + changes[a.client] for n, v in state.tensors.items()}, 10, 0.5),
        )
        for a in plan.assignments
    )
    after, facts = strategy.aggregate(state, plan, answers)
    for name, value in state.tensors.items():
        torch.testing.assert_close(after.tensors[name], value + 2.0)
    assert facts == {"tau_effective": 4.0}


def test_who_does_more_steps_does_not_pull_the_model_to_itself(world):
    """Two clients with opposite gradients: FedAvg follows the faster one, FedNova neither."""
    strategy, state, plan = plan_of(world, [1, 9])
    answers = [
        next(stepped(state, replace(plan, assignments=(a,)), g))
        for a, g in zip(plan.assignments, (1.0, -1.0), strict=True)
    ]
    after, _ = strategy.aggregate(state, plan, iter(answers))
    plain, _ = world.strategy("fedavg").aggregate(state, plan, iter(answers))
    for name, value in state.tensors.items():
        torch.testing.assert_close(after.tensors[name], value)
        torch.testing.assert_close(plain.tensors[name], value + 4.0)


def test_only_those_who_answered_count(world):
    strategy, state, plan = plan_of(world, [2, 6, 4], momentum=0.0)
    answers = [pair for pair in stepped(state, plan) if pair[0].client != 11]
    after, facts = strategy.aggregate(state, plan, iter(answers))
    assert facts == {"tau_effective": 3.0}
    for name, value in state.tensors.items():
        torch.testing.assert_close(after.tensors[name], value - 3.0)


def test_with_momentum_lengths_are_those_of_momentum(world):
    strategy, state, plan = plan_of(world, [1, 2], momentum=0.9)
    _, facts = strategy.aggregate(state, plan, stepped(state, plan))
    assert facts["tau_effective"] == pytest.approx((1 + 2.9) / 2)
    assert world.assembled("fednova", {"training.momentum": 0.5}).strategy.ground.momentum == 0.5
    adam = {"training.optimiser": "adamw", "training.learning_rate": 0.001}
    assert world.assembled("fednova", adam).strategy.ground.momentum == 0.0


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_equal_steps_it_is_fedavg_to_the_bit(world, momentum):
    strategy, state, plan = plan_of(world, [5, 5, 5], momentum=momentum)
    answers = list(world.answers(plan, strategy, state, [0.1, 0.7, 0.4]))
    after, _ = strategy.aggregate(state, plan, iter(answers))
    plain, _ = world.strategy("fedavg").aggregate(state, plan, iter(answers))
    assert all(torch.equal(value, plain.tensors[name]) for name, value in after.tensors.items())


def test_privacy_refuses_changes_that_grow_after_they_were_clipped():
    with pytest.raises(ConfigError, match="cannot protect changes that FedNova makes longer"):
        Config().changed({"strategy.name": "fednova", "privacy.noise": 1.0})
