"""FlexCom: shares of a change by the links, error feedback, and FedAvg where everything travels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from heroes.errors import ConfigError
from heroes.federation import Stop
from heroes.rounds import begin, run
from heroes.settings.config import Config
from heroes.strategies.flexcom import by_bound, by_deadline


def test_shares_by_the_bound():
    shares = by_bound(np.array([1.0, 8.0, 27.0]), 0.1, 0.001)  # in proportion to 1, 1/2, 1/3
    assert shares / shares[0] == pytest.approx([1.0, 1 / 2, 1 / 3])
    assert (shares**-2.0).mean() == pytest.approx(100.0)
    assert shares[0] == pytest.approx(np.sqrt((1 + 4 + 9) / 300))
    # no less than .08: 1 / .08^2 + 1 / .1512^2 = 2 / .1^2
    assert by_bound(np.array([1.0, 1e9]), 0.1, 0.08) == pytest.approx([0.1512, 0.08], abs=1e-4)
    assert by_bound(np.array([3.0, 5.0]), 1.0, 0.01).tolist() == pytest.approx([1.0, 1.0])


def test_shares_with_which_uploads_end_together():
    # (T - 1) / 4 + (T - 2) / 2 = 2 * 0.5: T = 3; half of 4 seconds after 1, half of 2 after 2
    assert by_deadline(np.array([4.0, 2.0]), np.array([1.0, 2.0]), 0.5, 0.01) == pytest.approx([0.5, 0.5])
    late = by_deadline(np.array([4.0, 2.0]), np.array([1.0, 9.0]), 0.3, 0.1)
    assert late == pytest.approx([0.5, 0.1])


@pytest.mark.parametrize("rule", ["bound", "deadline"])
def test_slow_links_send_less_and_the_plan_knows_the_bytes(world, rule):
    strategy = world.strategy("flexcom", share=0.2, rule=rule)
    cohort = replace(world.cohort([4e8] * 3), upload=np.array([1e5, 2e5, 8e5]))
    plan = strategy.assign(strategy.begin(0), cohort)
    shares = [a.up_share for a in plan.assignments]
    assert shares == sorted(shares) == plan.facts["shares"]
    assert shares[0] < shares[2]
    for a, upload in zip(plan.assignments, cohort.upload.tolist(), strict=True):
        assert a.bytes_up == pytest.approx(7000 * a.up_share, abs=1)
        assert a.transfer_seconds == pytest.approx(a.bytes_up / upload + 7100 / 1e6)
    assert {a.up_bits for a in plan.assignments} == {None}


def test_where_everything_travels_it_is_fedavg_to_the_bit(world):
    whole = {"strategy.share": 1.0, "strategy.least": 1.0}
    *_, (state, entry) = run(world.assembled("flexcom", whole), Stop(3))
    *_, (plain, told) = run(world.assembled("fedavg"), Stop(3))
    assert all(torch.equal(value, plain.tensors[name]) for name, value in state.tensors.items())
    assert (entry.traffic, entry.seconds) == (told.traffic, told.seconds)


def test_what_is_left_out_is_kept_and_sent_later(world):
    federation = world.assembled("flexcom", {"strategy.share": 0.05, "federation.cohort": 12})
    steps = list(run(federation, Stop(6)))
    first, entry = steps[0]
    assert set(first.residuals) == set(range(12))
    assert all(any(bool(t.any()) for t in kept.values()) for kept in first.residuals.values())
    (_, exact), *_ = run(world.assembled("fedavg", {"federation.cohort": 12}), Stop(1))
    assert entry.bytes_up < 0.3 * exact.bytes_up
    start = begin(federation).tensors["2.weight"]
    moved = [int((state.tensors["2.weight"] != start).sum()) for state, _ in steps]
    assert moved[0] < 0.6 * start.numel()
    assert moved[-1] > 1.5 * moved[0]  # what is small is sent when it has added up


def test_it_needs_error_feedback_and_so_no_flower():
    assert Config().with_strategy("flexcom").exchange.error_feedback
    assert not Config().with_strategy("flexcom").with_strategy("fedavg").exchange.error_feedback
    with pytest.raises(ConfigError, match=r"which needs exchange\.error_feedback = True, not False"):
        Config().changed({"strategy.name": "flexcom", "exchange.error_feedback": False})
    with pytest.raises(ConfigError, match="residuals cannot follow a client"):
        Config().changed({"strategy.name": "flexcom", "engine.name": "flower"})
