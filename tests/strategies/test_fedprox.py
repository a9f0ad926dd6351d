"""FedProx: a proximal term, and as many steps as a client has time for."""

from __future__ import annotations

import pytest

from heroes.client.terms import Proximal


def test_clients_add_the_proximal_term(world):
    assert world.strategy("fedprox", proximal=0.5).duties(2).terms == (Proximal(0.5),)
    assert world.strategy("fedprox", proximal=0.0).duties(2).terms == ()


def test_slow_clients_do_part_of_the_work_instead_of_being_waited_for(world):
    cohort = world.cohort([4e8, 1e8, 2e8])  # 0.015, 0.06, 0.03 s a step, 0.0421 s of transfer
    strategy = world.strategy("fedprox", tau=6, tau_max=100)
    plan = strategy.assign(strategy.begin(0), cohort)
    # T - 0.0421 = 18 / (1/0.015 + 1/0.06 + 1/0.03) = 0.1542...: 10, 2 and 5 whole steps
    assert [a.tau for a in plan.assignments] == [10, 2, 5]
    assert plan.facts["deadline"] == pytest.approx(0.0421 + 18 / (1 / 0.015 + 1 / 0.06 + 1 / 0.03), rel=1e-3)
    everyone = world.strategy("fedprox", tau=6, partial_work=False)
    plain = everyone.assign(everyone.begin(0), cohort)
    assert [a.tau for a in plain.assignments] == [6, 6, 6]
    assert max(a.seconds for a in plan.assignments) < 0.6 * max(a.seconds for a in plain.assignments)


def test_no_more_than_tau_max_and_no_less_than_one(world):
    strategy = world.strategy("fedprox", tau=6, tau_max=7)
    plan = strategy.assign(strategy.begin(0), world.cohort([4e9, 4e9, 1e5]))
    assert [a.tau for a in plan.assignments] == [7, 7, 4]
    assert [a.straggler for a in plan.assignments] == [False, False, False]


def test_clients_move_less_the_larger_mu_is(world):
    moved = []
    for mu in (0.0, 1.0, 10.0):
        strategy = world.strategy("fedprox", proximal=mu)
        before = world.federation(strategy).strategy.begin(0)
        state, _ = world.three_rounds(strategy)
        moved.append(sum(float((state.tensors[n] - v).norm()) for n, v in before.tensors.items()))
    assert moved[0] > moved[1] > moved[2]
