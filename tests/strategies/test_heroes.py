"""The Heroes strategy: what it assigns, what it learns from the answers, and three rounds pinned."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes import seeds
from heroes.client.training import LocalSettings, Trainer
from heroes.federation import Stop
from heroes.messages import Cohort, Selection, Update
from heroes.planning.loads import LearningRate
from heroes.planning.pacing import Estimates
from heroes.rounds import as_sent, make_task, run, run_round
from heroes.slices.cuts import cut_out
from heroes.strategies.heroes import Heroes, HeroesMemory, mean_estimates

ESTIMATES = Estimates(loss=1.0, smoothness=0.5, variance=0.3, gradient=0.4)


def cohort(speeds, upload=200e3, download=1e6):
    count = len(speeds)
    links = np.full(count, upload), np.full(count, download)
    return Cohort(
        np.arange(10, 10 + count),
        ("board",) * count,
        np.array(speeds),
        *links,
        np.zeros(count),
        fastest=max(speeds),
        usual=np.array(speeds),
    )


MIXED = cohort([4e8, 1e8, 3.2e8, 2e8, 1.1e8])  # step seconds at widths 3, 1, 3, 2, 1


def after_rounds(strategy, rounds=1, **memory):
    """The state after some rounds, with estimates in memory."""
    begun = strategy.begin(0)
    kept = {"counters": begun.memory.counters, "estimates": ESTIMATES} | memory
    return replace(begun, round=rounds, memory=HeroesMemory(**kept))


def known(estimates):
    return {name: value for name, value in asdict(estimates).items() if value is not None and name != "loss"}


def answers(plan, strategy, state, estimates=ESTIMATES, value=None):
    for a in plan.assignments:
        tensors = cut_out(state.tensors, strategy.cut(a.selection))
        if value is not None:
            tensors = {name: torch.full_like(tensor, value) for name, tensor in tensors.items()}
        yield a, Update(a.client, a.round, tensors, 10, estimates.loss, known(estimates))


def test_costs_follow_from_the_width_and_the_clients_status(world):
    plan = world.strategy("heroes", probes=2).assign(
        world.strategy("heroes").begin(0), cohort([4e8, 1e8], upload=100e3, download=1e6)
    )
    fast, slow = plan.assignments
    assert (fast.selection.width, slow.selection.width) == (3, 1)
    assert (fast.step_seconds, slow.step_seconds) == pytest.approx((0.015, 0.01))
    # 2 * 2 gradients of half a step
    assert (fast.probe_seconds, slow.probe_seconds) == pytest.approx((0.03, 0.02))
    # 7000 up, 7100 down
    assert (fast.transfer_seconds, slow.transfer_seconds) == pytest.approx((0.0771, 0.0221))
    assert (fast.bytes_up, fast.bytes_down, slow.bytes_up, slow.bytes_down) == (7000, 7100, 2000, 2100)
    assert [a.round for a in plan.assignments] == [1, 1]


def test_downloads_are_free_when_they_do_not_count_and_probes_when_there_are_none(world):
    strategy = world.strategy("heroes", probes=0, count_download=False)
    plan = strategy.assign(strategy.begin(0), cohort([4e8], upload=100e3))
    assert plan.assignments[0].transfer_seconds == pytest.approx(0.07)
    assert plan.assignments[0].probe_seconds == 0.0


@pytest.mark.parametrize("settings", [{}, {"deadline": "fastest"}, {"blocks": "free"}, {"pace": "bound"}])
@pytest.mark.parametrize("rounds", [0, 3])
def test_assigning_changes_no_state_and_gives_the_same_plan_again(world, settings, rounds):
    strategy = world.strategy("heroes", **settings)
    state = after_rounds(strategy, rounds)
    kept = copy.deepcopy(state)
    plan = strategy.assign(state, MIXED)
    assert strategy.assign(state, MIXED) == plan
    assert state.memory == kept.memory
    assert all(torch.equal(state.tensors[name], value) for name, value in kept.tensors.items())


def test_in_the_first_round_everyone_does_tau_first_steps(world):
    plan = world.strategy("heroes").assign(world.strategy("heroes").begin(0), MIXED)
    assert [a.tau for a in plan.assignments] == [6] * 5
    assert (
        plan.facts.get("rule"),
        plan.facts.get("tau_star"),
        plan.facts.get("deadline"),
        plan.facts.get("rounds_left"),
    ) == ("fixed", 6.0, None, 20)


def test_with_fixed_tau_later_rounds_are_like_the_first(world):
    strategy = world.strategy("heroes", adaptive_tau=False)
    plan = strategy.assign(after_rounds(strategy, 7), MIXED)
    assert [a.tau for a in plan.assignments] == [6] * 5
    assert (plan.facts.get("rule"), plan.facts.get("rounds_left")) == ("fixed", 13)


@given(
    st.lists(st.floats(5e7, 5e8), min_size=1, max_size=8),
    st.floats(50e3, 1e6),
    st.sampled_from([0.0, "auto"]),
)
def test_later_everyone_finishes_within_the_deadline_and_the_mean_tau_is_the_pace(world, speeds, upload, rho):
    strategy = world.strategy("heroes", rho=rho)
    plan = strategy.assign(after_rounds(strategy), cohort(speeds, upload))
    assert plan.facts.get("tau_star") == pytest.approx(6.0)  # the first calibrated value
    late = plan.facts.get("deadline") * (1 + 1e-6)
    window = plan.facts.get("deadline") / 10 if rho == "auto" else 0.0
    for a in plan.assignments:
        assert a.straggler == (a.tau == 1 and a.seconds > late)
        assert a.straggler or a.seconds <= late
        if 1 < a.tau < 40:
            assert a.seconds > plan.facts.get("deadline") - max(window, a.step_seconds) * (1 + 1e-6)
    lost = np.mean([max(1.0, window / a.step_seconds) for a in plan.assignments])
    assert 6.0 - lost - 1e-6 <= np.mean([a.tau for a in plan.assignments]) <= 6.0 + 1e-6


def test_a_client_with_a_hopeless_link_is_a_straggler_with_tau_min(world):
    strategy = world.strategy("heroes", tau_first=6, tau_min=2, tau_max=40)
    clients = replace(MIXED, upload=np.array([200e3, 200e3, 200e3, 200e3, 50.0]))
    plan = strategy.assign(after_rounds(strategy), clients)
    assert [a.straggler for a in plan.assignments] == [False] * 4 + [True]
    assert plan.assignments[-1].tau == 2
    assert plan.assignments[-1].seconds > 40 > plan.facts.get("deadline")


def test_the_fastest_client_in_all_sets_the_pace_and_keeps_it(world):
    strategy = world.strategy("heroes", deadline="fastest", probes=0, count_download=False, rho=0.0)
    plan = strategy.assign(after_rounds(strategy), cohort([4e8, 1e8, 2e8]))
    # 6 steps each: 6*15 + 35 = 125 ms at width 3, 6*10 + 10 = 70 ms at width 1, 6*15 + 20 = 110 ms at width 2
    assert plan.facts.get("deadline") == pytest.approx(0.070)
    assert [a.tau for a in plan.assignments] == [2, 6, 3]  # (70 - 35) / 15, its own, (70 - 20) / 15
    assert plan.facts.get("tau_star") == pytest.approx(6.0)
    # the others may even the counters out, the pace-setter may not
    generous = world.strategy("heroes", deadline="fastest", probes=0, count_download=False, rho=1.0)
    assert [a.tau for a in generous.assign(after_rounds(strategy), cohort([4e8, 1e8, 2e8])).assignments] == [
        2,
        6,
        1,
    ]


def test_the_calibration_is_remembered_and_later_paces_follow_the_loss(world):
    strategy = world.strategy("heroes")
    state = after_rounds(strategy)
    plan = strategy.assign(state, MIXED)
    state, _ = strategy.aggregate(state, plan, answers(plan, strategy, state, replace(ESTIMATES, loss=0.25)))
    assert state.memory.pace_scale == plan.facts.get("pace_scale")
    assert plan.facts.get("pace_scale") is not None
    later = strategy.assign(state, MIXED)
    # sqrt(1/4), and 18 instead of 19 rounds to go
    assert later.facts.get("tau_star") == pytest.approx(3.0 * (19 / 18) ** 0.5)
    assert later.facts.get("pace_scale") == plan.facts.get("pace_scale")


def test_a_time_budget_decides_the_rounds_left(world):
    strategy = world.strategy("heroes", time_budget=100.0)
    plan = strategy.assign(replace(after_rounds(strategy), seconds=90.0), MIXED)
    load = [(a.step_seconds, a.probe_seconds + a.transfer_seconds) for a in plan.assignments]
    mu, nu = np.mean(load, axis=0)
    assert plan.facts.get("rule") == "time"
    assert plan.facts.get("rounds_left") == round(10.0 / (6 * mu + nu))


def test_a_threshold_out_of_reach_is_flagged(world):
    strategy = world.strategy("heroes", threshold=0.1)
    assert (
        "cannot be reached"
        in strategy.assign(after_rounds(strategy, reducing_error=1.0), MIXED).facts["notices"][0]
    )
    reachable = strategy.assign(after_rounds(strategy, reducing_error=0.0), MIXED)
    assert (reachable.facts["rule"], reachable.facts["notices"]) == ("threshold", ())


def test_least_trained_groups_are_served_in_turn(world):
    plan = world.strategy("heroes", blocks="grid").assign(
        world.strategy("heroes").begin(0), cohort([1e8] * 4)
    )
    assert [a.selection for a in plan.assignments] == [Selection(1, (n,), (4 * n,)) for n in (0, 1, 2, 0)]


def test_least_trained_blocks_are_served_wherever_they_are(world):
    plan = world.strategy("heroes", blocks="free").assign(
        world.strategy("heroes").begin(0), cohort([1e8, 2e8, 1e8, 4e8])
    )
    assert [a.selection.pieces for a in plan.assignments] == [(0,), (1, 2, 3, 4), (5,), tuple(range(9))]


def test_nested_slices_are_always_the_leading_ones(world):
    plan = world.strategy("heroes", blocks="nested").assign(
        world.strategy("heroes").begin(0), cohort([1e8, 2e8, 1e8, 4e8])
    )
    assert [a.selection.groups for a in plan.assignments] == [(0,), (0, 1), (0,), (0, 1, 2)]
    assert plan.assignments[1].selection.pieces == (0, 1, 3, 4)


def test_counters_count_the_steps_of_those_who_answered(world):
    strategy = world.strategy("heroes")
    state = after_rounds(strategy, counters=(1,) * 9)
    plan = strategy.assign(state, cohort([1e8, 1e8, 4e8]))
    kept = [pair for n, pair in enumerate(answers(plan, strategy, state)) if n != 1]
    after, facts = strategy.aggregate(state, plan, iter(kept))
    narrow, lost, wide = plan.assignments
    wanted = np.full(9, 1 + wide.tau)
    wanted[narrow.selection.pieces[0]] += narrow.tau
    assert lost.selection.pieces != narrow.selection.pieces
    assert after.memory.counters == facts["counters"] == tuple(wanted.tolist())
    assert facts["counter_variance"] == pytest.approx(np.var(wanted))
    assert after.round == state.round + 1


def test_reducing_errors_are_the_squared_norms_of_blocks_not_held(world):
    strategy = world.strategy("heroes", max_width=2)
    state = strategy.begin(0)
    # energies 4, 16, 36, 64
    coefficient = torch.tensor([1.0, 2.0, 3.0, 4.0])[:, None, None].expand(4, 2, 2).clone()
    state = replace(state, tensors={**state.tensors, "2.weight.coefficient": coefficient})
    plan = strategy.assign(state, cohort([1e8, 4e8, 1e8]))
    assert [a.selection.pieces for a in plan.assignments] == [(0,), (0, 1, 2, 3), (3,)]
    after, facts = strategy.aggregate(state, plan, answers(plan, strategy, state))
    assert facts["reducing_errors"] == (116.0, 0.0, 56.0)
    assert facts["reducing_error"] == after.memory.reducing_error == 116.0


def test_the_bound_and_the_step_size_condition_are_written_down(world):
    strategy = world.strategy("heroes")
    state = strategy.begin(0)
    plan = strategy.assign(state, cohort([4e8]))
    _, facts = strategy.aggregate(state, plan, answers(plan, strategy, state))
    # F = 1, L (G^2 + 18 sigma^2) = 0.5 (0.4 + 5.4) = 2.9, H = 20, eta tau = 0.6
    assert facts["bound"] == pytest.approx(4 / (20 * 0.6) + 2.9 * 0.6 / 3)
    assert facts["step_size_ok"] is False  # 0.1 > 1 / (6 * 0.5 * 6)
    _, facts = strategy.aggregate(
        state, plan, answers(plan, strategy, state, replace(ESTIMATES, smoothness=0.2))
    )
    assert facts["step_size_ok"] is True


def test_what_is_answered_enters_the_model_and_what_nobody_held_keeps_its_value(world):
    strategy = world.strategy("heroes", blocks="nested")
    state = strategy.begin(0)
    plan = strategy.assign(state, cohort([1e8]))
    after, _ = strategy.aggregate(state, plan, answers(plan, strategy, state, value=9.0))
    for name, rows in (("2.weight.coefficient", 1), ("0.weight", 3), ("2.bias", 2)):
        assert (after.tensors[name][:rows] == 9.0).all()
        assert torch.equal(after.tensors[name][rows:], state.tensors[name][rows:])
    assert (after.tensors["2.weight.basis"] == 9.0).all()


@pytest.mark.parametrize("power", [-1.0, 0.5, 1.0])
def test_changes_count_by_the_steps_behind_them_if_that_is_asked_for(world, power):
    strategy = by_default(world, by_steps=power)
    state = strategy.begin(0)
    plan = strategy.assign(state, MIXED)
    taus = np.array([a.tau for a in plan.assignments])
    assert len(set(taus)) > 1
    after, _ = strategy.aggregate(state, plan, answers(plan, strategy, state, value=9.0))
    old = state.tensors["2.weight.basis"]  # all hold it
    weight = float(np.mean((taus / taus.mean()) ** power))
    assert torch.allclose(after.tensors["2.weight.basis"], old + weight * (9.0 - old), rtol=1e-5)
    assert "by_steps" in strategy.reveals()


def test_estimates_are_means_and_those_nobody_gave_keep_their_last_value():
    before = Estimates(9.0, 8.0, 7.0, 6.0)
    seen = [
        {"loss": 1.0, "smoothness": 2.0, "gradient": float("nan")},
        {"loss": 3.0, "gradient": float("inf")},
        {"loss": 2.0, "smoothness": 4.0, "gradient": -1.0},
    ]
    assert mean_estimates(seen, before) == Estimates(2.0, 3.0, 7.0, 6.0)
    assert mean_estimates(seen, None) == Estimates(2.0, 3.0, None, None)
    assert mean_estimates([], before) == before
    assert mean_estimates([], None) is None


def test_one_width_is_plain_federated_averaging_of_a_composed_model(world):
    federation = world.federation(world.strategy("heroes", max_width=1))
    begun = federation.strategy.begin(0)
    state, entry = run_round(federation, begun)
    assert {(c.width, c.pieces) for c in entry.clients} == {(1, (0,))}
    data, trainer = world.data(), Trainer(federation.family, LocalSettings(batch_size=5))
    cohort_of_round = federation.fleet.status(np.array([c.client for c in entry.clients]), 1)
    updates = [
        trainer.train(
            make_task(federation, begun, a, partial(as_sent, federation, begun)),
            data.train,
            data.shares[a.client],
        ).tensors
        for a in federation.strategy.assign(begun, cohort_of_round).assignments
    ]
    assert len(updates) == 4
    for name, value in state.tensors.items():
        torch.testing.assert_close(value, torch.stack([u[name] for u in updates]).mean(dim=0))
        assert not torch.equal(value, begun.tensors[name])
    *_, (_, last) = run(world.federation(world.strategy("heroes", max_width=1)), Stop(5))
    assert last.accuracy > 0.6


ALL = tuple(range(9))
GOLDEN = [  # client, width, blocks, tau
    [(1, 3, ALL, 6), (2, 2, (0, 1, 3, 4), 6), (7, 1, (8,), 6), (8, 2, (0, 2, 6, 8), 6)],
    [(3, 3, ALL, 3), (4, 3, ALL, 4), (10, 1, (4,), 11), (11, 3, ALL, 4)],
    [(2, 2, (4, 5, 7, 8), 3), (3, 3, ALL, 2), (6, 3, ALL, 2), (10, 1, (0,), 6)],
]


def test_three_golden_rounds(world):
    federation = world.federation()
    state = federation.strategy.begin(seeds.number(federation.seed, "model"))
    entries = []
    for _ in range(3):
        state, entry = run_round(federation, state)
        entries.append(entry)
    assert [[(c.client, c.width, c.pieces, c.tau) for c in entry.clients] for entry in entries] == GOLDEN
    assert entries[-1].facts["counters"] == [39, 27, 27, 27, 41, 24, 27, 24, 36]
    assert [entry.loss for entry in entries] == pytest.approx([1.03942, 0.74289, 0.69838], rel=1e-3)
    assert [entry.seconds for entry in entries] == pytest.approx([0.158529, 0.295478, 0.391697], rel=1e-3)
    assert [entry.facts["tau_star"] for entry in entries] == pytest.approx([6.0, 6.0, 3.68501], rel=1e-3)


def by_default(world, **changes):
    """Heroes as it comes, but for the seconds that a step may take."""
    published = ("blocks", "pace", "rho", "any_width", "useful", "patience", "tau_min", "tau_max")
    plain = {name: Heroes.model_fields[name].default for name in published}
    return world.strategy("heroes", **plain | changes)


def middle(plan):
    """Seconds of the median client's step, and of all that is not steps."""
    return np.median([(a.step_seconds, a.transfer_seconds) for a in plan.assignments], axis=0)


def test_by_default_rounds_are_as_long_as_costs_little_progress_a_second(world):
    def progress(tau):
        return tau / (1 + (tau / half) ** 2) / (tau * mu + nu)

    strategy = by_default(world, one_pass=9.0)
    plan = strategy.assign(strategy.begin(0), MIXED)
    (mu, nu), half = middle(plan), 0.45 / 0.1**2
    best = max(np.linspace(0.1, half, 100_000), key=progress)
    assert plan.facts["rule"] == "thrifty"
    assert plan.facts["tau_star"] > best
    assert progress(plan.facts["tau_star"]) == pytest.approx((1 - strategy.thrift) * progress(best))
    assert len({a.tau for a in plan.assignments}) > 1  # in the first round already
    for a in plan.assignments:
        assert plan.facts["deadline"] - a.step_seconds < a.seconds <= plan.facts["deadline"] * (1 + 1e-6)
    assert strategy.duties(2).probes == 0
    assert strategy.reveals() is None
    hasty = by_default(world, one_pass=9.0, thrift=0.0)
    assert hasty.assign(hasty.begin(0), MIXED).facts["tau_star"] == pytest.approx(best, rel=1e-3)


def test_fewer_examples_and_greater_steps_make_for_shorter_rounds(world):
    def aimed(rate=0.1, **ground):
        strategy = by_default(world, learning_rate=LearningRate(rate), **ground)
        return strategy.assign(strategy.begin(0), MIXED).facts["tau_star"]

    assert aimed(one_pass=1.0) < aimed(one_pass=2.0) < aimed(one_pass=9.0) == aimed(one_pass=1e9) == aimed()
    assert aimed(rate=0.2) < aimed(rate=0.1)
    assert aimed(rate=0.1, stride=2.0) == aimed(rate=0.2)


@pytest.mark.parametrize("pace", ["thrifty", "progress"])
@pytest.mark.parametrize("rate", [1e-60, 5e-324])
def test_a_rate_that_decayed_to_nothing_makes_for_long_rounds_not_for_an_error(world, pace, rate):
    slow = replace(MIXED, upload=MIXED.upload / 1000)
    for start, decay in ((rate, 1.0), (0.1, rate)):
        strategy = by_default(world, pace=pace, learning_rate=LearningRate(start, decay))
        for done in (0, 2):
            plan = strategy.assign(replace(strategy.begin(0), round=done), slow)
            assert strategy.tau_min <= plan.facts["tau_star"] <= strategy.tau_max


def test_the_steps_can_be_those_that_bring_the_most_progress_a_second(world):
    strategy = by_default(world, pace="progress", passes=1000.0)
    plan = strategy.assign(strategy.begin(0), MIXED)
    mu, nu = middle(plan)
    assert plan.facts["rule"] == "progress"
    assert plan.facts["tau_star"] == pytest.approx(np.sqrt(30 / 0.1 * nu / mu))


def waiting(plan):
    ends = np.array([a.seconds for a in plan.assignments])
    return 1 - ends.mean() / ends.max()


@pytest.mark.parametrize("one_pass", [0.5, 0.6, 0.8, 1.0])
def test_where_whole_steps_would_make_clients_wait_their_batches_fit_the_round(world, one_pass):
    fitting, idling = (by_default(world, one_pass=one_pass, patience=share) for share in (0.05, 1.0))
    full, idle = (strategy.assign(strategy.begin(0), MIXED) for strategy in (fitting, idling))
    assert waiting(idle) > 0.05
    assert waiting(full) < 0.01
    assert {a.batch for a in idle.assignments} == {1.0}
    assert max(a.seconds for a in full.assignments) <= full.facts["deadline"] * (1 + 1e-6)
    for a in full.assignments:
        fits = (full.facts["deadline"] - a.transfer_seconds) * a.batch / a.step_seconds
        assert a.tau == fitting.tau_min or abs(a.tau - fits) <= 0.5 + 1e-9  # the nearest number
    assert all(0.25 <= a.batch <= 1.5 for a in full.assignments)
    assert len({a.batch for a in full.assignments}) > 1
    long = by_default(world, one_pass=9.0)
    assert {a.batch for a in long.assign(long.begin(0), MIXED).assignments} == {1.0}


def test_clients_that_all_do_the_same_steps_wait_as_they_do(world):
    same = by_default(world, adaptive_tau=False)
    plan = same.assign(same.begin(0), MIXED)
    assert waiting(plan) > 0.05
    assert {a.batch for a in plan.assignments} == {1.0}
    assert "fill" in same.idle
    patient = [by_default(world, one_pass=0.4, patience=1.0, fill=fill) for fill in (True, False)]
    assert patient[0].assign(same.begin(0), MIXED) == patient[1].assign(same.begin(0), MIXED)
    assert "fill" in patient[0].idle
    assert "fill" not in by_default(world).idle


def test_where_whole_steps_would_make_clients_wait_the_round_can_become_a_little_shorter_or_longer(world):
    calm, strict = (by_default(world, one_pass=0.4, patience=share, fill=False) for share in (0.05, 1.0))
    plans = [strategy.assign(strategy.begin(0), MIXED) for strategy in (calm, strict)]
    assert waiting(plans[0]) < waiting(plans[1])
    assert (
        plans[1].facts["deadline"] * 0.75 <= plans[0].facts["deadline"] <= plans[1].facts["deadline"] * 1.25
    )
    assert plans[0].facts["tau_star"] == plans[1].facts["tau_star"]


def test_the_pace_follows_links_and_the_learning_rate_by_their_roots(world):
    def aimed(upload, rate):
        strategy = by_default(world, pace="progress", learning_rate=LearningRate(rate))
        return strategy.assign(strategy.begin(0), cohort([4e8], upload, 1e12)).facts["tau_star"]

    assert aimed(50e3, 0.1) == pytest.approx(2 * aimed(200e3, 0.1), rel=1e-3)
    assert aimed(200e3, 0.4) == pytest.approx(aimed(200e3, 0.1) / 2, rel=1e-3)


def test_nobody_goes_over_its_examples_more_often_than_it_should(world):
    slow = replace(MIXED, upload=MIXED.upload / 1000)  # so that many steps would be worth it
    for pace, most in (("progress", 5), ("thrifty", 8)):
        strategy = by_default(world, pace=pace, one_pass=2.0, useful=0.0)
        assert strategy.assign(strategy.begin(0), slow).facts["tau_star"] == pytest.approx(most * 2.0)


def test_adamw_goes_further_for_its_rate(world):
    sgd, adamw = (by_default(world, pace="progress", stride=stride) for stride in (1.0, 4.0))
    stars = [each.assign(each.begin(0), MIXED).facts["tau_star"] for each in (sgd, adamw)]
    assert stars[0] == pytest.approx(2 * stars[1])


def test_a_client_whose_link_leaves_it_no_time_gets_a_narrower_slice(world):
    uploads = np.array([200e3, 200e3, 200e3, 8e3])
    clients = replace(cohort([4e8] * 4), upload=uploads)
    blind = by_default(world, useful=0.0)
    assert [a.selection.width for a in blind.assign(blind.begin(0), clients).assignments] == [3, 3, 3, 3]
    seeing = by_default(world, pace="progress")
    plan = seeing.assign(seeing.begin(0), clients)
    assert [a.selection.width for a in plan.assignments] == [3, 3, 3, 2]
    assert all(a.tau >= plan.facts["tau_star"] / 4 for a in plan.assignments)
    assert plan.assignments[-1].bytes_up == 4000


def test_whoever_cannot_do_enough_even_at_width_1_does_what_it_can(world):
    strategy = by_default(world)
    clients = replace(cohort([4e8] * 4), upload=np.array([200e3, 200e3, 200e3, 50.0]))
    last = strategy.assign(strategy.begin(0), clients).assignments[-1]
    assert (last.selection.width, last.tau, last.straggler) == (1, strategy.tau_min, True)


def honest_and_lied(strategy, lie, when, rounds=5):
    """tau* of every round, with ten honest clients and with one that lies, in one round or from it on."""
    found = []
    for liar in (None, 13):
        state, rng, stars = strategy.begin(0), np.random.default_rng(1), []
        for number in range(1, rounds + 1):
            plan = strategy.assign(state, cohort([2e8] * 10))
            stars.append(plan.facts["tau_star"])
            told = []
            for a, update in answers(plan, strategy, state):
                true = {
                    name: value * rng.uniform(0.5, 2) / number for name, value in known(ESTIMATES).items()
                }
                said = {"loss": rng.uniform(0.5, 2) / number, **true}
                said |= lie if a.client == liar and number in when else {}
                told.append((a, replace(update, loss=said.pop("loss"), measured=said)))
            state, _ = strategy.aggregate(state, plan, iter(told))
        found.append(np.array(stars))
    return found


@pytest.mark.parametrize("pace", ["calibrated", "bound"])
@pytest.mark.parametrize("when", [(1,), (3,), range(1, 9)])
@pytest.mark.parametrize(
    "lie",
    [
        *({name: size} for name in ("loss", *known(ESTIMATES)) for size in (1e12, 1e-12)),
        {"loss": 15.0},  # which is believed in the first rounds
        {"loss": 1e-12, **dict.fromkeys(known(ESTIMATES), 1e12)},
        {"loss": 1e12, **dict.fromkeys(known(ESTIMATES), 1e-12)},
    ],
)
def test_one_liar_among_ten_moves_the_pace_by_less_than_twice(world, pace, when, lie):
    strategy = world.strategy("heroes", pace=pace, tau_min=1, tau_first=50, tau_max=2000)
    honest, lied = honest_and_lied(strategy, lie, when)
    assert 1 < honest.min() <= honest.max() < 2000
    assert (np.abs(np.log2(lied / honest)) < 1).all()
