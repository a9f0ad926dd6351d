"""ADP: one tau for all, from estimates that every client makes at the weights it received and at those it
ends with.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heroes.client.extras import SKETCH, SKETCHED, sketch
from heroes.client.training import LocalSettings, Trainer, draw_batches
from heroes.federation import Stop
from heroes.messages import Selection, Task, Update
from heroes.rounds import run, run_round
from heroes.slices.cuts import cut_out
from heroes.strategies.adp import AdpMemory, calibrated, objective

KNOWN = {"lipschitz": 2.0, "smoothness": 0.5, "divergence": 0.4}


def by_hand(tau, rho, beta, delta, eta, phi, budget, step, aggregation):
    """G(tau) as the public code has it, one number at a time."""
    h = max(0.0, (delta / beta) * ((eta * beta + 1) ** tau - 1) - eta * delta * tau)
    t = (budget - aggregation - step) * tau / (step * tau + aggregation)
    return (1 + math.sqrt(1 + 4 * phi * rho * eta * t**2 * h / tau)) / (2 * eta * phi * t) + rho * h


def after(strategy, tau, phi=None, **estimates):
    return replace(strategy.begin(0), round=1, memory=AdpMemory(tau, phi, **(KNOWN | estimates)))


def taus(strategy, state, cohort):
    return {a.tau for a in strategy.assign(state, cohort).assignments}


def test_the_objective_by_hand():
    found = objective(np.array([1.0, 2.0]), 2.0, 0.5, 0.4, 0.1, 0.05, budget=100.0, step=0.5, aggregation=2.0)
    # tau 1: h = 0.8 * 0.05 - 0.04 = 0,       T = 97.5 / 2.5 = 39, G = 2 / (0.01 * 39)
    # tau 2: h = 0.8 * 0.1025 - 0.08 = 0.002, T = 195 / 3 = 65,    G = (1 + sqrt(1 + 0.04 * 65^2 * 0.001)) /
    # 0.65 + 0.004
    assert found == pytest.approx([2 / 0.39, (1 + math.sqrt(1.169)) / 0.65 + 0.004])


@pytest.mark.parametrize("phi", [5e-5, 0.025])
@pytest.mark.parametrize("budget", [10.0, 1000.0])
def test_the_objective_follows_the_formula_for_every_tau(phi, budget):
    wanted = [by_hand(tau, 1.3, 0.7, 0.2, 0.05, phi, budget, 0.3, 1.1) for tau in range(1, 101)]
    assert objective(np.arange(1.0, 101.0), 1.3, 0.7, 0.2, 0.05, phi, budget, 0.3, 1.1) == pytest.approx(
        wanted
    )


def test_one_step_does_not_drift_and_neither_do_clients_that_agree():
    settings = {"eta": 0.1, "phi": 0.05, "budget": 100.0, "step": 0.5, "aggregation": 2.0}
    alone = objective(np.array([1.0]), 2.0, 0.5, 40.0, **settings)
    assert alone == pytest.approx(1 / (0.1 * 0.05 * 39.0))  # h = 0 leaves 1 / (eta phi T), whatever delta
    agreeing = objective(np.array([2.0, 10.0]), 2.0, 0.5, 0.0, **settings)
    assert agreeing == pytest.approx([1 / (0.005 * 65.0), 1 / (0.005 * 975 / 7)])


def test_beta_has_a_floor():
    settings = {"delta": 0.4, "eta": 0.1, "phi": 0.05, "budget": 100.0, "step": 0.5, "aggregation": 2.0}
    tau = np.array([1.0, 5.0, 50.0])
    floor = objective(tau, 2.0, 1e-5, **settings)
    assert np.isfinite(floor).all()
    assert objective(tau, 2.0, 0.0, **settings).tolist() == floor.tolist()
    assert objective(tau, 2.0, 9e-6, **settings).tolist() == floor.tolist()
    assert objective(tau, 2.0, 2e-2, **settings)[2] != floor[2]


def test_a_drift_beyond_all_numbers_is_never_chosen_and_a_spent_budget_still_gives_a_tau(world):
    wild = objective(np.array([1.0, 100.0]), 2.0, 1e9, 1.0, 0.1, 0.05, 100.0, 0.5, 2.0)
    assert wild[0] < wild[1] == math.inf
    for phi in ("auto", 5e-5):
        strategy = world.strategy("adp", time_budget=1e-9, phi=phi)
        (tau,) = taus(strategy, after(strategy, 3), world.cohort([1e8, 4e8]))
        assert 1 <= tau <= 30


def test_everyone_gets_the_whole_model_and_one_tau_starting_at_ten(world):
    strategy = world.strategy("adp")
    plan = strategy.assign(strategy.begin(0), world.cohort([4e8, 1e6, 2e8]))
    assert {(a.selection, a.tau) for a in plan.assignments} == {
        (Selection(3, (0, 1, 2), tuple(range(9))), 10)
    }
    later = strategy.assign(after(strategy, 9), world.cohort([4e8, 1e6, 2e8]))
    assert {a.selection.width for a in later.assignments} == {3}
    assert {float(a.tau) for a in later.assignments} == {later.facts.get("tau_star")}
    assert taus(
        world.strategy("adp", tau_first=4), world.strategy("adp", tau_first=4).begin(0), world.cohort([4e8])
    ) == {4}


@pytest.mark.parametrize(
    ("current", "most", "wanted"), [(1, 100, 10), (2, 100, 20), (7, 40, 40), (30, 100, 100), (3, 1, 1)]
)
def test_tau_is_looked_for_up_to_ten_times_the_last_and_tau_max(world, current, most, wanted):
    # clients that agree: the more steps the better
    strategy = world.strategy("adp", tau_first=1, tau_max=most, phi=5e-5)
    assert taus(strategy, after(strategy, current, divergence=0.0), world.cohort([4e8, 1e8])) == {wanted}


@pytest.mark.parametrize("budget", [5.0, 50.0, 5000.0, None])
def test_tau_is_the_best_for_the_slowest_step_and_the_slowest_transfer(world, budget):
    strategy = world.strategy("adp", time_budget=budget, phi=0.025)
    cohort = replace(world.cohort([4e8, 1e8]), upload=np.array([100e3, 200e3]))
    step = 6e6 / 1e8
    # with the one extra gradient of the probe
    aggregation = max(7000 / 100e3 + 3e6 / 4e8, 7000 / 200e3 + 3e6 / 1e8) + 7100 / 1e6
    total = 20 * (10 * step + aggregation) if budget is None else budget
    wanted = [by_hand(tau, 2.0, 0.5, 0.4, 0.1, 0.025, total, step, aggregation) for tau in range(1, 101)]
    assert taus(strategy, after(strategy, 20), cohort) == {1 + int(np.argmin(wanted))}


def test_a_longer_budget_affords_shorter_rounds(world):
    def chosen(budget):
        strategy = world.strategy("adp", time_budget=budget, phi=0.025)
        (tau,) = taus(strategy, after(strategy, 20), world.cohort([1e8, 4e8]))
        return tau

    found = [chosen(budget) for budget in (2.0, 20.0, 200.0, 20000.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 2 * found[-1]


def test_larger_phi_counts_drift_for_more(world):
    def chosen(phi):
        strategy = world.strategy("adp", time_budget=50.0, phi=phi)
        (tau,) = taus(strategy, after(strategy, 20), world.cohort([1e8, 4e8]))
        return tau

    found = [chosen(phi) for phi in (1e-4, 1e-3, 1e-2, 1e-1, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 4 * found[-1]


@pytest.mark.parametrize("first", [1, 2, 10, 30])
@pytest.mark.parametrize("budget", [2.0, 200.0, None])
@pytest.mark.parametrize("known", [{}, {"lipschitz": 0.5, "smoothness": 13.0, "divergence": 5.6}])
def test_the_first_tau_that_is_computed_is_tau_first_and_the_next_follow_the_formula(
    world, first, budget, known
):
    strategy, cohort = world.strategy("adp", tau_first=first, time_budget=budget), world.cohort([1e8, 4e8])
    plan = strategy.assign(after(strategy, first, **known), cohort)
    assert {a.tau for a in plan.assignments} == {first}
    phi = plan.facts["phi"]
    by_hand = world.strategy("adp", tau_first=first, time_budget=budget, phi=phi)
    calmer = known | {"divergence": 0.001}
    (later,) = taus(strategy, after(strategy, first, phi, **calmer), cohort)
    assert later > first
    assert {later} == taus(by_hand, after(by_hand, first, **calmer), cohort)


def test_phi_is_calibrated_once_and_one_by_hand_is_not_remembered(world):
    strategy = world.strategy("adp")
    plan, made = updates(world, strategy, after(strategy, 10), [{}], [None], [10])
    state = strategy.aggregate(after(strategy, 10), plan, iter(made))[0]
    assert state.memory.phi == plan.facts["phi"] > 0
    again = strategy.assign(replace(state, memory=replace(state.memory, divergence=9.0)), world.cohort([4e8]))
    assert again.facts["phi"] == plan.facts["phi"]
    given = world.strategy("adp", phi=0.025)
    plan, made = updates(world, given, after(given, 10), [{}], [None], [10])
    assert given.aggregate(after(given, 10), plan, iter(made))[0].memory.phi is None
    assert plan.facts["phi"] == 0.025


def test_without_drift_no_phi_calls_for_fewer_steps_and_tau_stays(world):
    strategy = world.strategy("adp")
    plan = strategy.assign(after(strategy, 10, divergence=0.0), world.cohort([4e8, 1e8]))
    assert ({a.tau for a in plan.assignments}, plan.facts["phi"]) == ({10}, None)
    assert calibrated(lambda taus, phi: taus, 5) is None  # fewer steps are better, whatever phi


def test_one_extra_gradient_is_charged(world):
    strategy = world.strategy("adp", count_download=False)
    fast, slow = strategy.assign(strategy.begin(0), world.cohort([4e8, 1e8])).assignments
    assert (fast.probe_seconds, slow.probe_seconds) == pytest.approx((0.0075, 0.03))  # half a step
    assert fast.seconds == pytest.approx(0.0075 + 10 * 0.015 + 7000 / 200e3)


def test_clients_measure_and_pay_for_it_in_every_fifth_round_if_so_configured(world):
    strategy = world.strategy("adp", probe_every=5)
    plans = [
        strategy.assign(replace(strategy.begin(0), round=n), world.cohort([4e8])).assignments[0]
        for n in range(6)
    ]
    assert [a.probes for a in plans] == [True, False, False, False, False, True]
    assert [a.probe_seconds > 0 for a in plans] == [a.probes for a in plans]


@pytest.mark.parametrize("up_bits", [32, 4])
def test_the_sketch_travels_too_and_is_counted(world, up_bits):
    costs = world.assembled("adp", {"exchange.up_bits": up_bits}).strategy.ground.costs
    plain = world.assembled("fedavg", {"exchange.up_bits": up_bits}).strategy.ground.costs
    assert costs.bytes_up[2] == plain.bytes_up[2] + 4 * 1000
    assert costs.bytes_down.tolist() == plain.bytes_down.tolist()
    assert costs.step_flops.tolist() == plain.step_flops.tolist()


def updates(world, strategy, state, estimates, gradients, samples):
    plan = strategy.assign(state, world.cohort([4e8] * len(samples)))
    made = []
    for (a, update), e, g, count in zip(
        world.answers(plan, strategy, state), estimates, gradients, samples, strict=True
    ):
        extras = {} if g is None else {"sketch": torch.tensor(g)}
        made.append((a, Update(a.client, a.round, update.tensors, count, 1.0, e, extras)))
    return plan, made


def test_estimates_are_weighted_by_samples(world):
    strategy = world.strategy("adp", tau_first=5)
    estimates = [{"smoothness": 2.0, "lipschitz": 8.0}, {"smoothness": 6.0, "lipschitz": 4.0}]
    plan, made = updates(world, strategy, strategy.begin(0), estimates, [[3.0, 0.0], [3.0, 4.0]], [30, 10])
    state, facts = strategy.aggregate(strategy.begin(0), plan, iter(made))
    # the mean gradient is (3, 1): the distances are 1 and 3, weighted (30 * 1 + 10 * 3) / 40
    assert state.memory == AdpMemory(5, None, lipschitz=7.0, smoothness=3.0, divergence=pytest.approx(1.5))
    assert state.round == 1
    assert facts["estimates"] == {"lipschitz": 7.0, "smoothness": 3.0, "divergence": state.memory.divergence}


def test_estimates_are_averaged_with_those_before(world):
    strategy = world.strategy("adp", phi=5e-5)
    state = after(strategy, 3)
    estimates = [{"smoothness": 2.5, "lipschitz": 6.0}] * 2
    plan, made = updates(world, strategy, state, estimates, [[1.0, 0.0], [3.0, 0.0]], [10, 10])
    memory = strategy.aggregate(state, plan, iter(made))[0].memory
    assert (memory.lipschitz, memory.smoothness) == (4.0, 1.5)  # from 2.0 and 0.5
    assert memory.divergence == pytest.approx(0.7)  # from 0.4, and 1 now


def test_estimates_that_nobody_gave_keep_their_last_value(world):
    strategy = world.strategy("adp")
    state = after(strategy, 3)
    plan, made = updates(world, strategy, state, [{}, {"smoothness": math.inf}], [None, None], [10, 20])
    tau = plan.assignments[0].tau
    kept = AdpMemory(tau, plan.facts["phi"], **KNOWN)
    assert strategy.aggregate(state, plan, iter(made))[0].memory == kept
    assert strategy.aggregate(state, plan, iter([]))[0].memory == kept
    assert taus(strategy, replace(state, memory=AdpMemory(3, 0.1, lipschitz=1.0)), world.cohort([4e8])) == {3}


def test_what_is_not_a_number_does_not_count(world):
    strategy = world.strategy("adp")
    state = after(strategy, 3)
    estimates = [
        {"smoothness": 2.0, "lipschitz": math.nan},
        {"smoothness": 4.0, "lipschitz": 5.0},
        {"smoothness": 3.0, "lipschitz": 5.0},
    ]
    plan, made = updates(
        world, strategy, state, estimates, [[math.nan, 0.0], [1.0, 0.0], [3.0, 0.0]], [10, 10, 10]
    )
    memory = strategy.aggregate(state, plan, iter(made))[0].memory
    assert (memory.lipschitz, memory.smoothness, memory.divergence) == (3.5, 1.75, 0.7)


def test_a_client_measures_loss_and_gradient_at_both_ends_on_the_same_batch(world):
    family, examples, share, seed = world.family(), world.examples(30), np.arange(20), 9
    settings = LocalSettings(batch_size=6, probes=1, train_in="dense", sends=(SKETCH,))
    sent = family.initial_weights(2)
    task = Task(world.assignment(selection=world.strategy("adp").selection(3), tau=4), sent, seed)
    update = Trainer(family, settings).train(task, examples, share)
    rng = np.random.default_rng(seed)
    draw_batches(share, 6, 4, rng)  # those it trains on
    (batch,) = draw_batches(share, 6, 1, rng)
    inputs, targets = examples.inputs[batch], examples.targets[batch]

    def loss_and_gradient(weights):
        w = {name: value.double().requires_grad_() for name, value in weights.items()}
        hidden = torch.tanh(inputs.double() @ w["0.weight"].T + w["0.bias"])
        hidden = torch.tanh(hidden @ w["2.weight"].T + w["2.bias"])
        loss = F.cross_entropy(hidden @ w["4.weight"].T + w["4.bias"], targets)
        return float(loss.detach()), torch.cat(
            [g.reshape(-1) for g in torch.autograd.grad(loss, list(w.values()))]
        )

    (first, start), (last, end) = loss_and_gradient(sent), loss_and_gradient(update.tensors)
    moved = float(
        torch.cat([(update.tensors[name] - sent[name]).reshape(-1) for name in sent]).double().norm()
    )
    assert moved > 0.01
    assert update.measured["smoothness"] == pytest.approx(float((end - start).norm()) / moved, rel=1e-3)
    assert update.measured["lipschitz"] == pytest.approx(abs(last - first) / moved, rel=1e-3)
    torch.testing.assert_close(update.extras["sketch"], sketch(start), rtol=1e-4, atol=1e-6)
    assert update.extras["sketch"].dtype == torch.float32  # as its bytes are counted


@pytest.mark.parametrize("heavy", [1.0, 30.0])
@pytest.mark.parametrize("size", [100, 50_000, 2**21 + 7])
def test_sketches_of_any_size_keep_distances_within_a_few_percent(size, heavy):
    draws = torch.Generator().manual_seed(size)
    one, two = (torch.randn(size, generator=draws, dtype=torch.float64) for _ in range(2))
    one[: size // 100] *= heavy  # a few values may be much larger than the others
    found = sketch(one) - sketch(two)
    assert found.shape == (SKETCHED,)
    assert float(found.norm()) == pytest.approx(float((one - two).norm()), rel=0.08)
    torch.testing.assert_close(sketch(one - two), found, rtol=1e-3, atol=1e-2)


def test_everyone_draws_the_same_sketch():
    values = torch.arange(3000, dtype=torch.float64)
    assert sketch(values)[:4].tolist() == [-769.0, 6744.0, 3089.0, 1885.0]


def test_the_model_is_the_plain_mean_as_in_fedavg(world):
    adp, fedavg = (
        world.federation(world.strategy("adp", tau_first=6)),
        world.federation(world.strategy("fedavg")),
    )
    one, two = (run_round(f, f.strategy.begin(0))[0] for f in (adp, fedavg))
    assert all(torch.equal(value, two.tensors[name]) for name, value in one.tensors.items())


def test_it_learns_with_its_own_tau(world):
    *_, (_, last) = run(world.federation(world.strategy("adp", time_budget=5.0)), Stop(5))
    assert last.accuracy > 0.8


def test_three_golden_rounds(world):
    state, entries = world.three_rounds(world.strategy("adp"))
    assert [[(c.client, c.width, c.tau) for c in entry.clients] for entry in entries] == [
        [(1, 3, 10), (2, 3, 10), (7, 3, 10), (8, 3, 10)],
        [(3, 3, 10), (4, 3, 10), (10, 3, 10), (11, 3, 10)],
        [(2, 3, 10), (3, 3, 10), (6, 3, 10), (10, 3, 10)],
    ]
    assert [entry.loss for entry in entries] == pytest.approx([0.826339, 0.271208, 0.080679], rel=1e-3)
    assert [entry.seconds for entry in entries] == pytest.approx([0.676492, 1.300998, 1.974265], rel=1e-3)
    memory = state.memory
    assert [memory.lipschitz, memory.smoothness, memory.divergence] == pytest.approx(
        [0.227888, 0.439348, 0.295539], rel=1e-3
    )
    assert memory.phi == pytest.approx(0.00719647, rel=1e-3)
    norms = [float(state.tensors[name].norm()) for name in ("0.weight", "2.weight", "4.weight")]
    assert norms == pytest.approx([2.383230, 2.599388, 2.871022], rel=1e-3)


def told(lies, strategy, state, plan):
    """Ten answers; client 3 says what it likes."""
    rng = np.random.default_rng(state.round)
    for a in plan.assignments:
        measured = {"lipschitz": 2.0 * rng.uniform(0.5, 2), "smoothness": 0.5 * rng.uniform(0.5, 2)}
        gradient, samples = torch.from_numpy(rng.normal(size=50)).float() / 100, 100
        if a.client == 3:
            measured |= {name: size for name, size in lies.items() if name in measured}
            gradient, samples = gradient * lies.get("sketch", 1.0), lies.get("samples", samples)
        tensors = cut_out(state.tensors, strategy.cut(a.selection))
        yield a, Update(a.client, a.round, tensors, samples, 1.0, measured, {"sketch": gradient})


@pytest.mark.parametrize(
    "lies",
    [
        *({name: size} for name in ("lipschitz", "smoothness", "sketch") for size in (1e12, 1e-12)),
        {"samples": 2**40},
        {"samples": 2**40, "lipschitz": 1e12, "smoothness": 1e12, "sketch": 1e12},
    ],
)
def test_one_liar_among_ten_moves_tau_by_less_than_twice(world, lies):
    strategy, found = world.strategy("adp", time_budget=5.0, phi=0.025), []
    for said in ({}, lies):
        state, taus = strategy.begin(0), []
        for _ in range(5):
            plan = strategy.assign(state, replace(world.cohort([2e8] * 10), clients=np.arange(10)))
            taus.append(plan.assignments[0].tau)
            state, _ = strategy.aggregate(state, plan, told(said, strategy, state, plan))
        found.append(np.array(taus[1:]))
    assert 2 < found[0].min() <= found[0].max() < 100
    assert (np.abs(np.log2(found[1] / found[0])) < 1).all()
