"""The server's step: hand-computed moments, elements that nobody trained, the same bits after a resume."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import heroes
from heroes.assemble import Own, assembled
from heroes.errors import TrainingError
from heroes.federation import Stop
from heroes.messages import Update
from heroes.rounds import begin, run, run_round
from heroes.server.optimisers import Adam, Momentum, Yogi, averaged, optimised
from heroes.slices.cuts import Slice, cut_out
from heroes.slices.overlays import holders
from heroes.transport.engines import in_process
from heroes.transport.engines.in_process import FunctionEngine


def two_steps(optimiser, first, second):
    """The model and the moments after two changes of one value that begins at 1."""
    value, moments = {"w": torch.tensor([1.0])}, {}
    everybody = {"w": torch.tensor([3.0])}
    for number, change in ((1, first), (2, second)):
        value, moments = optimised(optimiser, value, {"w": value["w"] + change}, everybody, moments, number)
    return float(value["w"]), {kind: float(of["w"]) for kind, of in moments.items()}


def test_momentum_by_hand():
    value, moments = two_steps(Momentum(rate=0.5, beta=0.9), 0.25, -0.5)
    assert moments == {"momentum": pytest.approx(0.9 * 0.25 - 0.5)}
    assert value == pytest.approx(1 + 0.5 * 0.25 + 0.5 * (0.9 * 0.25 - 0.5))


def test_adam_by_hand():
    """Corrected for the beginning, the first step is the rate times d / (|d| + epsilon / sqrt(1 - beta2))."""
    value, moments = two_steps(Adam(rate=0.1, beta1=0.5, beta2=0.75, epsilon=0.25), 2.0, -1.0)
    m1, v1 = 0.5 * 2, 0.25 * 4
    m2, v2 = 0.5 * m1 - 0.5, 0.75 * v1 + 0.25
    first = 0.1 * math.sqrt(0.25) / 0.5 * m1 / (math.sqrt(v1) + 0.25)
    second = 0.1 * math.sqrt(1 - 0.75**2) / 0.75 * m2 / (math.sqrt(v2) + 0.25)
    assert first == pytest.approx(0.1 * 2 / (2 + 0.25 / math.sqrt(0.25)))
    assert moments == {"first": pytest.approx(m2), "second": pytest.approx(v2)}
    assert value == pytest.approx(1 + first + second)


@pytest.mark.parametrize(("second", "v2"), [(-0.5, 1.0 - 0.25 * 0.25), (3.0, 1.0 + 0.25 * 9)])
def test_yogi_by_hand(second, v2):
    """v is 1 after a first change of 2, and goes down for smaller squares than it, up for larger ones."""
    value, moments = two_steps(Yogi(rate=0.1, beta1=0.5, beta2=0.75, epsilon=0.25), 2.0, second)
    m2 = 0.5 * 1.0 + 0.5 * second
    first = 0.1 * math.sqrt(0.25) / 0.5 * 1.0 / (1.0 + 0.25)
    step = 0.1 * math.sqrt(1 - 0.75**2) / 0.75 * m2 / (math.sqrt(v2) + 0.25)
    assert moments == {"first": pytest.approx(m2), "second": pytest.approx(v2)}
    assert value == pytest.approx(1 + first + step)


def test_yogi_falls_more_slowly_than_adam():
    still = [two_steps(kind(beta2=0.5), 2.0, 0.5)[1]["second"] for kind in (Adam, Yogi)]
    assert still == [pytest.approx(0.5 * 2 + 0.5 * 0.25), pytest.approx(2 - 0.5 * 0.25)]


@pytest.mark.parametrize("optimiser", [Momentum(), Adam(), Yogi()])
def test_what_nobody_trained_keeps_its_value_and_its_moments(optimiser):
    before = {"w": torch.arange(6.0).reshape(3, 2), "b": torch.ones(2), "rest": torch.full((4,), 5.0)}
    some = [{"w": Slice("w", ((0, torch.tensor([2, 0])),))}, {"b": Slice("b")}]
    after = {name: value + 1.0 for name, value in before.items()} | {"rest": before["rest"]}
    first, moments = optimised(optimiser, before, after, holders(before, some), {}, 1)
    assert first["w"][1].tolist() == before["w"][1].tolist()
    assert (first["w"][[0, 2]] > before["w"][[0, 2]]).all()
    assert first["rest"] is before["rest"]
    assert set(moments) == set(optimiser.moments)
    for of_kind in moments.values():
        assert set(of_kind) == {"w", "b"}  # what was never trained takes no memory
        assert of_kind["w"].dtype == torch.float32
        assert of_kind["w"][1].tolist() == [0.0, 0.0]
        assert (of_kind["w"][[0, 2]] > 0).all()
    others = [{"w": Slice("w", ((0, torch.tensor([1])),))}]
    second, later = optimised(optimiser, first, first, holders(before, others), moments, 2)
    for kind, of_kind in later.items():
        assert torch.equal(of_kind["w"][[0, 2]], moments[kind]["w"][[0, 2]])
        assert torch.equal(of_kind["b"], moments[kind]["b"])
    assert all(torch.equal(second[name], first[name]) for name in first)  # row 1 did not change at all


def test_momentum_of_nothing_and_rate_one_is_no_optimiser_at_all(world):
    plain, other = (world.federation() for _ in range(2))
    other = replace(other, optimiser=Momentum(rate=1.0, beta=0.0))
    for (one, entry), (two, same) in zip(run(plain, Stop(4)), run(other, Stop(4)), strict=True):
        assert entry == same
        assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)


def test_a_step_that_overflows_is_said():
    huge = {"w": torch.tensor([3e38])}
    with pytest.raises(TrainingError, match="optimiser 'momentum' made w infinite in round 1; use a smaller"):
        optimised(Momentum(rate=9.0), {"w": torch.zeros(1)}, huge, {"w": torch.ones(1)}, {}, 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"optimiser.name": "momentum"}, Momentum(rate=1.0, beta=0.9)),
        ({"optimiser.name": "momentum", "optimiser.rate": 0.5}, Momentum(rate=0.5, beta=0.9)),
        ({"optimiser.name": "adam"}, Adam(rate=0.01, beta1=0.9, beta2=0.99, epsilon=1e-3)),
        (
            {"optimiser.name": "yogi", "optimiser.momentum": 0.0, "optimiser.beta2": 0.5},
            Yogi(0.01, 0.0, 0.5, 1e-3),
        ),
        (
            {"optimiser.name": "yogi", "optimiser.rate": 1.0, "optimiser.epsilon": 0.1},
            Yogi(1.0, 0.9, 0.99, 0.1),
        ),
    ],
)
def test_the_configuration_says_how_the_server_steps(world, changes, expected):
    assert world.assembled("fedavg", changes).optimiser == expected


def test_noise_comes_before_the_step(world):
    """With rate 1/2 and no momentum the noise is halved too."""
    config = small(**{"privacy.noise": 1.0, "optimiser.name": "none"})
    noisy = assemble(config)
    halved = assemble(
        config.changed({"optimiser.name": "momentum", "optimiser.momentum": 0.0, "optimiser.rate": 0.5})
    )
    begun = begin(noisy)
    one, two = (run_round(f, begun)[0].tensors for f in (noisy, halved))
    for name, value in begun.tensors.items():
        torch.testing.assert_close(two[name] - value, (one[name] - value) / 2, rtol=1e-3, atol=1e-5)


def test_the_average_by_hand_and_where_nobody_trained():
    average, new = (
        {"w": torch.tensor([1.0, 2.0]), "b": torch.ones(1)},
        {"w": torch.zeros(2), "b": torch.zeros(1)},
    )
    counts = holders(new, [{"w": Slice("w", ((0, torch.tensor([1])),))}])
    after = averaged(average, new, counts, 0.75)
    assert {name: value.tolist() for name, value in after.items()} == {"w": [1.0, 1.5], "b": [1.0]}
    assert average["w"].tolist() == [1.0, 2.0]


def test_the_average_is_tested_and_the_global_model_is_trained(world):
    def moved(task):
        a, tensors = task.assignment, {name: value + 1.0 for name, value in task.tensors.items()}
        return Update(a.client, a.round, tensors, 10, 0.5, nonce=a.nonce)

    federation = replace(world.federation(world.strategy("fedavg"), FunctionEngine(moved)), average=0.5)
    begun = begin(federation)
    assert federation.served(begun) is begun.tensors
    state = begun
    for _ in range(3):
        state, _ = run_round(federation, state)
    # the newest counts twice as much as the one before; the start does not count
    expected = {n: value + (1 + 2 * 2 + 4 * 3) / 7 for n, value in begun.tensors.items()}
    assert federation.served(state) is state.averaged
    for name, value in begun.tensors.items():
        torch.testing.assert_close(state.tensors[name], value + 3.0)
        torch.testing.assert_close(state.averaged[name], expected[name])
    near = replace(federation, lookback=0.1)
    state = begun
    for _ in range(3):
        state, _ = run_round(near, state)
    # of three rounds the average may be 0.3 old: 0.3 / 1.3 of it is the past; before that 0.2 / 1.2, and 0
    second = 2 - 0.2 / 1.2
    for name, value in begun.tensors.items():
        torch.testing.assert_close(state.averaged[name], value + (3 * 1.0 + 0.3 * second) / 1.3)
    off = replace(federation, average=0.0)
    assert off.served(state) is state.tensors
    assert run_round(off, state)[0].averaged == {}


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
        "training.probe_every": 2,
    }
    return heroes.recipes.digits().changed(wanted | changes)


def test_the_model_in_the_folder_and_in_the_run_is_the_average(tmp_path):
    done = heroes.run(small(**{"evaluation.average": 0.9}), out=tmp_path / "run")
    served = done.federation.served(done.state)
    assert not torch.equal(*(next(iter(of.values())) for of in (served, done.state.tensors)))
    written = load_file(tmp_path / "run" / "model.safetensors")
    assert set(served) <= set(written)
    assert all(torch.equal(written[name], value) for name, value in served.items())
    family, strategy = done.federation.family, done.federation.strategy
    whole = family.plain_weights(cut_out(served, strategy.cut(strategy.selection(strategy.widths[-1]))))
    inside = dict(done.model().named_parameters())
    assert all(torch.equal(inside[name], value) for name, value in whole.items())
    assert done.records[-1].accuracy == done.federation.score(done.state, 4)().accuracy


class StoppedError(Exception):
    """Raised by a listener in the middle of a run."""


def stop_after_three(record):
    if record.round == 3:
        raise StoppedError


@pytest.mark.parametrize(
    ("engine", "name"), [("processes", "momentum"), ("in_process", "adam"), ("in_process", "yogi")]
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, engine, name):
    config = small(
        **{
            "optimiser.name": name,
            "optimiser.momentum": 0.5,
            "evaluation.average": 0.5,
            "engine.name": engine,
            "engine.workers": 2,
        }
    )
    whole = heroes.run(config, out=tmp_path / "whole")
    with pytest.raises(StoppedError):
        heroes.run(config, out=tmp_path / "cut", on_round=stop_after_three)
    resumed = heroes.resume(tmp_path / "cut")
    for file in ("records.jsonl", "model.safetensors", "config.toml"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    for part in ("tensors", "averaged"):
        one, two = getattr(whole.state, part), getattr(resumed.state, part)
        assert one
        assert list(one) == list(two)
        assert all(torch.equal(two[tensor], value) for tensor, value in one.items())
    assert {kind: set(of) for kind, of in whole.state.moments.items()} == {
        kind: set(of) for kind, of in resumed.state.moments.items()
    }
    for kind, of_kind in whole.state.moments.items():
        assert of_kind
        assert all(
            torch.equal(resumed.state.moments[kind][tensor], value) for tensor, value in of_kind.items()
        )
