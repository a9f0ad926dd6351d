"""Noise of the right size in the right places, and an account of what it hides."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import heroes
from heroes.errors import ConfigError
from heroes.report import load_run
from heroes.report.compare import compare
from heroes.report.page import page
from heroes.rounds import begin
from heroes.server.defence import norm
from heroes.server.privacy import Privacy
from heroes.settings.config import Config
from heroes.slices.cuts import Slice

PRIVACY = Privacy(clip=2.0, noise=1.5, delta=1e-5, clients=100, drawn=10, seed=3)


def test_noise_is_as_large_as_the_sum_needs_divided_by_the_holders():
    whole = {"w": torch.zeros(3, 20_000), "b": torch.zeros(5)}
    cut = {"w": Slice("w", ((0, torch.tensor([0, 1])),))}
    other = {"w": Slice("w", ((0, torch.tensor([1])),))}
    noised = PRIVACY.noised(whole, [cut, other], 4)
    assert noised["w"][0].std() == pytest.approx(3.0, rel=0.03)  # one holder
    assert noised["w"][1].std() == pytest.approx(1.5, rel=0.03)  # two
    assert noised["w"][:2].mean().abs() < 0.05
    assert not noised["w"][2].any()
    assert noised["b"] is whole["b"]
    assert noised["w"].dtype == torch.float32


def test_noise_repeats_with_the_seed_and_differs_from_round_to_round():
    whole, cuts = {"w": torch.zeros(50)}, [{"w": Slice("w")}]
    one = PRIVACY.noised(whole, cuts, 1)["w"]
    assert torch.equal(one, PRIVACY.noised(whole, cuts, 1)["w"])
    assert not torch.equal(one, PRIVACY.noised(whole, cuts, 2)["w"])
    system = replace(PRIVACY, seed=None)
    assert not torch.equal(system.noised(whole, cuts, 1)["w"], system.noised(whole, cuts, 1)["w"])


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_with_the_crowd():
    spent = [PRIVACY.epsilon(rounds) for rounds in (1, 10, 100)]
    assert spent == sorted(spent)
    assert replace(PRIVACY, noise=3.0).epsilon(10) < PRIVACY.epsilon(10)
    assert replace(PRIVACY, clients=1000).epsilon(10) < PRIVACY.epsilon(10)
    assert PRIVACY.epsilon(10) < replace(PRIVACY, sampled=False).epsilon(10)


def leaked(epsilon: float, mu: float) -> float:
    """The exact delta of a Gaussian mechanism whose sensitivity is mu deviations."""

    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)


def test_epsilon_of_a_single_release_is_just_above_the_exact_one():
    """One client can move the sum by 2 C under noise of 4 C: half a deviation."""
    spent = replace(PRIVACY, noise=4.0, sampled=False).epsilon(1)
    assert leaked(spent, 0.5) <= 1e-5 < leaked(0.85 * spent, 0.5)


def private(**changes) -> Config:
    wanted = {
        "federation.rounds": 2,
        "federation.cohort": 4,
        "engine.name": "in_process",
        "privacy.noise": 0.5,
        "strategy.pace": "constant",
        "evaluation.every_width": False,
    }
    return heroes.recipes.digits().changed(wanted | changes)


def test_what_was_spent_is_in_the_records_and_the_report(tmp_path):
    run = heroes.run(private(), out=tmp_path / "run")
    assert [record.epsilon for record in run.records] == [
        run.federation.privacy.epsilon(1),
        run.federation.privacy.epsilon(2),
    ]
    assert f"epsilon {run.records[-1].epsilon:.2f}" in str(run.summary())
    table = compare([load_run(tmp_path / "run")]).tables()[0]
    assert table.header[-1] == "epsilon"
    assert table.rows[0][-1] == f"{run.records[-1].epsilon:.2f}"
    assert "epsilon" in page(compare([load_run(tmp_path / "run")]))


def test_the_model_moves_by_no_more_than_the_clip_in_a_round():
    run = heroes.run(private(**{"training.learning_rate": 5.0, "privacy.noise": 1e-9, "privacy.clip": 0.01}))
    begun = begin(run.federation).tensors
    moved = norm({name: tensor - begun[name] for name, tensor in run.state.tensors.items()})
    assert 0.01 < moved <= 2 * 2 * 0.01  # two rounds; a value that one of four holds moves as far as that one


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strategy.pace": "calibrated"}, "use strategy.pace = 'constant'"),
        ({"robust.guard": True}, "robust.guard = false"),
        ({"robust.combine": "median"}, "combine = 'mean'"),
        ({"robust.clip": 1.0}, "clip = 'none'"),
    ],
)
def test_what_noise_cannot_protect_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        private(**changes)


@pytest.mark.parametrize(
    ("strategy", "key", "said"),
    [("adp", None, "use another strategy"), ("heterofl", "label_split", "label_split = false")],
)
def test_strategies_that_send_more_than_models_are_refused(strategy, key, said):
    changes = {"privacy.noise": 1.0} | ({f"strategy.{key}": True} if key else {})
    with pytest.raises(ConfigError, match=said):
        heroes.recipes.recipe("digits", strategy).changed(changes)
