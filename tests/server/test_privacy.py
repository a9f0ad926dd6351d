"""Noise of the right size in the right places, and an account of what it hides."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import heroes
from heroes.assemble.server import privacy
from heroes.errors import ConfigError, RunFolderError, TrainingError
from heroes.messages import Lost
from heroes.report import load_run
from heroes.report.compare import compare
from heroes.report.page import page
from heroes.rounds import begin, run_round
from heroes.server.defence import norm
from heroes.server.privacy import Privacy
from heroes.server.sampling import Uniform
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
    assert table.rows[0][-1] == f"{run.records[-1].epsilon:.2f} (study)"
    assert "epsilon" in page(compare([load_run(tmp_path / "run")]))


def by_hand(noise: float, rounds: int, *, drawn: tuple[int, int] | None, delta: float = 1e-5) -> float:
    """What dp-accounting says of so many releases, with clients drawn (out of all, so many) or not."""
    import dp_accounting as dp
    from dp_accounting import rdp

    gaussian: dp.DpEvent = dp.GaussianDpEvent(noise / 2)
    event = gaussian if drawn is None else dp.SampledWithoutReplacementDpEvent(*drawn, gaussian)
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(event, rounds)
    return accountant.get_epsilon(delta)


def spent(run) -> float:
    return run.records[-1].epsilon


def test_drawing_counts_where_all_clients_may_be_drawn():
    config = private(**{"federation.clients": 20, "privacy.noise": 4.0})
    assert spent(heroes.run(config)) == pytest.approx(by_hand(4.0, 2, drawn=(20, 4)), rel=0.02)


def test_in_real_time_it_does_not_since_few_may_be_connected():
    real = {"engine.name": "flower", "engine.clock": "wall", "privacy.noise": 4.0}
    config = private(**{"federation.clients": 20, **real})
    assert privacy(config, Uniform()).epsilon(2) == pytest.approx(by_hand(4.0, 2, drawn=None), rel=0.02)


def test_with_the_system_as_source_nobody_can_foresee_who_is_drawn_and_a_seed_makes_a_study():
    drawn = {}
    for source in ("seed", "system"):
        runs = [heroes.run(private(**{"privacy.source": source, "federation.rounds": 1})) for _ in range(2)]
        drawn[source] = [[client.client for client in run.records[0].clients] for run in runs]
        assert [run.records[0].noise for run in runs] == [source] * 2
        assert ("in a study" in str(runs[0].summary())) == (source == "seed")
    assert drawn["seed"][0] == drawn["seed"][1]
    assert drawn["system"][0] != drawn["system"][1]  # 4 of 40: one chance in 90,000 to be the same


class Spoiling:
    """Hands on what an engine gives; instead of what these clients trained, something else."""

    def __init__(self, engine, clients, instead) -> None:
        self.engine, self.clients, self.instead = engine, clients, instead

    def run(self, plan, task):
        tasks = {assignment.client: task(assignment) for assignment in plan}
        for update in self.engine.run(plan, task):
            mine = update.client in self.clients
            yield self.instead(update, tasks[update.client]) if mine else update


def refused(update, task):
    return replace(update, tensors={name: tensor * math.nan for name, tensor in update.tensors.items()})


def failed(update, task):
    return Lost(update.client, "it broke")


def astray(update, task):
    return replace(update, nonce=0)


def still(update, task):
    return replace(update, tensors=task.tensors)


@pytest.mark.parametrize("instead", [refused, failed, astray])
def test_the_model_does_not_show_whether_an_update_was_refused_or_changed_nothing(world, instead):
    """The same blocks get the same noise, and as many clients share it."""
    federation = replace(world.federation(), privacy=replace(PRIVACY, clip=1.0))
    begun = federation.strategy.begin(0)
    victim = run_round(federation, begun)[1].clients[0].client
    (model, entry), (other, honest) = (
        run_round(replace(federation, engine=Spoiling(federation.engine, {victim}, what)), begun)
        for what in (instead, still)
    )
    assert {lost.client for lost in entry.missing} == {victim}
    assert not honest.missing
    assert all(torch.equal(tensor, model.tensors[name]) for name, tensor in other.tensors.items())
    assert model.memory.counters == other.memory.counters  # which blocks come next says nothing either


def test_a_round_with_nothing_but_refused_updates_is_begun_again(world):
    federation = replace(world.federation(), privacy=PRIVACY)
    engine = Spoiling(federation.engine, range(100), refused)
    with pytest.raises(TrainingError, match="never had the 1 updates it needs"):
        run_round(replace(federation, engine=engine), federation.strategy.begin(0))


def test_rounds_that_are_done_again_are_paid_for_again(tmp_path):
    config = private(**{"privacy.source": "system", "privacy.noise": 4.0, "checkpoint.every": 2})
    heroes.run(config.changed({"federation.rounds": 3}), out=tmp_path / "run")
    (
        tmp_path / "run" / "checkpoints" / "round-0000003.safetensors"
    ).unlink()  # as if it had been killed in round 4
    drawn = 40, 4
    first = heroes.resume(tmp_path / "run", {"federation.rounds": 4})
    # 3, and 4 as far as it was
    assert spent(first) == pytest.approx(by_hand(4.0, 4 + 2, drawn=drawn), rel=0.02)
    more = heroes.resume(tmp_path / "run", {"federation.rounds": 5})
    assert spent(more) == pytest.approx(by_hand(4.0, 5 + 2, drawn=drawn), rel=0.02)  # which had ended well
    (tmp_path / "run" / "privacy.json").write_text('{"repeated": "x"}')
    with pytest.raises(RunFolderError, match="says 'x' rounds were repeated"):
        heroes.resume(tmp_path / "run", {"federation.rounds": 6})


def test_what_the_seed_repeats_is_paid_for_once(tmp_path):
    config = private(**{"privacy.noise": 4.0, "checkpoint.every": 2, "federation.rounds": 3})
    heroes.run(config, out=tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "round-0000003.safetensors").unlink()
    again = heroes.resume(tmp_path / "run", {"federation.rounds": 4})
    assert spent(again) == pytest.approx(by_hand(4.0, 4, drawn=(40, 4)), rel=0.02)


def test_the_model_moves_by_no_more_than_the_clip_in_a_round():
    run = heroes.run(private(**{"training.learning_rate": 5.0, "privacy.noise": 1e-9, "privacy.clip": 0.01}))
    begun = begin(run.federation).tensors
    moved = norm({name: tensor - begun[name] for name, tensor in run.state.tensors.items()})
    assert 0.01 < moved <= 2 * 2 * 0.01  # two rounds; a value that one of four holds moves as far as that one


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strategy.pace": "calibrated"}, "use strategy.pace = 'thrifty'"),
        ({"robust.guard": True}, "robust.guard = false"),
        ({"robust.combine": "median"}, "combine = 'mean'"),
        ({"robust.clip": 1.0}, "clip = 'none'"),
        ({"federation.target_loss": 0.1}, "cannot protect the training loss"),
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
