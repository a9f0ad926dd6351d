"""Federated Dropout: random channels, fresh in every round, drawn by each client or by all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heroes.slices.cuts import cut_out


def kept(strategy, plan):
    """The channels of the first hidden layer that each client keeps."""
    return [strategy.cut(a.selection)["0.weight"].axes[0][1].tolist() for a in plan.assignments]


def test_a_client_keeps_as_many_channels_as_it_affords_and_inputs_follow(world):
    strategy = world.strategy("feddropout")
    plan = strategy.assign(strategy.begin(0), world.cohort([4e8, 1e8, 2e8]))
    assert [len(channels) for channels in kept(strategy, plan)] == [9, 3, 6]
    for a in plan.assignments:
        cut = strategy.cut(a.selection)
        outputs, inputs = (indices.tolist() for _, indices in cut["2.weight"].axes)
        assert inputs == cut["0.weight"].axes[0][1].tolist() == sorted(set(inputs))
        assert cut["4.weight"].axes[0][1].tolist() == outputs
        assert {channel // 3 for channel in inputs} == {channel // 2 for channel in outputs}
        assert cut["4.bias"].axes == ()


def test_draws_are_a_clients_own_and_fresh_in_every_round(world):
    strategy = world.strategy("feddropout")
    state, cohort = strategy.begin(0), world.cohort([2e8] * 8)
    first = kept(strategy, strategy.assign(state, cohort))
    assert len({tuple(channels) for channels in first}) == 3  # all there are of 2 out of 3 groups
    assert kept(strategy, strategy.assign(state, cohort)) == first
    assert kept(strategy, strategy.assign(replace(state, round=1), cohort)) != first
    assert kept(strategy, strategy.assign(strategy.begin(1), cohort)) != first


def test_a_cohort_may_draw_together(world):
    strategy = world.strategy("feddropout", draw="cohort")
    state, cohort = strategy.begin(0), world.cohort([2e8] * 5)
    draws = [kept(strategy, strategy.assign(replace(state, round=r), cohort)) for r in range(10)]
    assert all(len({tuple(channels) for channels in draw}) == 1 for draw in draws)
    assert len({tuple(draw[0]) for draw in draws}) == 3


def test_the_mean_is_over_holders_and_nothing_is_rescaled(world):
    strategy = world.strategy("feddropout")
    state = strategy.begin(0)
    plan = strategy.assign(state, world.cohort([1e6, 4e8]))
    after, _ = strategy.aggregate(state, plan, world.answers(plan, strategy, state, [1.0, 3.0]))
    (few, _), rows = kept(strategy, plan), after.tensors["0.weight"][:, 0].tolist()
    assert rows == [2.0 if row in few else 3.0 for row in range(9)]
    served = cut_out(after.tensors, strategy.cut(strategy.selection(1)))
    assert served["0.weight"][:, 0].tolist() == rows[:3]


def test_a_checkpoint_with_another_seed_does_not_fit(world):
    strategy = world.strategy("feddropout")
    assert strategy.begin(3).memory.fits(strategy.begin(3).memory)
    assert not strategy.begin(3).memory.fits(strategy.begin(4).memory)


def test_on_average_every_channel_is_kept_equally_often(world):
    strategy = world.strategy("feddropout")
    state, count = strategy.begin(0), [0] * 9
    for r in range(60):
        for channels in kept(strategy, strategy.assign(replace(state, round=r), world.cohort([1e6] * 5))):
            for channel in channels:
                count[channel] += 1
    assert sum(count) == 900
    assert count == pytest.approx([100] * 9, abs=30)
