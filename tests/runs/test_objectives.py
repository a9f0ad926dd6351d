"""Tasks other than classification, and losses and metrics of one's own, from `heroes.run` to the records."""

from __future__ import annotations

import importlib.util
import math
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import nn

import heroes
from heroes.errors import ConfigError, DataError, TrainingError
from heroes.messages import plain

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_objective.py"
SMALL = {
    "federation.clients": 6,
    "federation.cohort": 3,
    "federation.rounds": 3,
    "model.max_width": 2,
    "data.partition": "iid",
    "evaluation.batch_size": 30,
    "engine.name": "in_process",
}
REGRESSION = {"objective.name": "mean_squared_error", "training.learning_rate": 0.01}


def config(changes=None):
    return heroes.Config(experiment="diabetes").changed(SMALL | (changes or {}))


def build(width, inputs=10, outputs=1):
    return nn.Sequential(
        nn.Linear(inputs, 8 * width),
        nn.ReLU(),
        nn.Linear(8 * width, 8 * width),
        nn.ReLU(),
        nn.Linear(8 * width, outputs),
    )


@pytest.fixture(scope="module")
def diabetes():
    """How ill 442 people are a year later: scaled to mean 0 and deviation 1."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes()
    inputs = torch.tensor(found.data, dtype=torch.float32) * 20
    targets = torch.tensor((found.target - found.target.mean()) / found.target.std(), dtype=torch.float32)
    return heroes.Examples(inputs[100:], targets[100:]), heroes.Examples(inputs[:100], targets[:100])


def clouds(seed=0):
    """Two classes, of which the second is rare."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(200, generator=generator) < 0.2).long()
    inputs = torch.randn(200, 10, generator=generator) + labels[:, None]
    return heroes.Examples(inputs[80:], labels[80:]), heroes.Examples(inputs[:80], labels[:80])


def worst(outputs, targets):
    return (outputs.squeeze(1) - targets).abs().max()


class Bias:
    """The mean error: it streams."""

    def start(self, outputs, targets):
        return {"sum": float((outputs.squeeze(1) - targets).double().sum()), "count": len(targets)}

    def merge(self, first, second):
        return {key: first[key] + second[key] for key in first}

    def finish(self, statistic):
        return statistic["sum"] / statistic["count"]


def outputs_of(run, examples):
    with torch.no_grad():
        return run.model()(examples.inputs).squeeze(1)


def test_regression_learns_and_gives_the_same_bits_in_processes(diabetes):
    own = {"worst": heroes.metric(worst, lower_is_better=True), "bias": Bias()}
    changes = REGRESSION | {"federation.rounds": 5}
    run = heroes.run(config(changes), model=build, data=diabetes, metrics=own)
    last = run.records[-1]
    errors = (outputs_of(run, diabetes[1]) - diabetes[1].targets).double()
    assert list(last.scores) == ["worst", "bias", "rmse", "mae"]
    assert (last.metric, last.lower_is_better, last.accuracy) == ("worst", True, None)
    assert last.scores["rmse"] == pytest.approx(float(errors.square().mean().sqrt()), rel=1e-5)
    assert last.scores["mae"] == pytest.approx(float(errors.abs().mean()), rel=1e-5)
    assert last.scores["worst"] == pytest.approx(float(errors.abs().max()), rel=1e-5)
    assert last.scores["bias"] == pytest.approx(float(errors.mean()), abs=1e-6)
    assert last.test_loss == pytest.approx(last.scores["rmse"] ** 2, rel=1e-6)
    assert last.scores["rmse"] < 0.78 < run.records[0].scores["rmse"]  # saying the mean has an error of 1
    assert last.scores_by_width.keys() == {1, 2}
    assert last.scores_by_width[2] == last.scores
    processes = changes | {"engine.name": "processes", "engine.workers": 2}
    other = heroes.run(config(processes), model=build, data=diabetes, metrics=own)
    assert [plain(r) for r in other.records] == [plain(r) for r in run.records]
    assert all(torch.equal(other.state.tensors[name], t) for name, t in run.state.tensors.items())


def test_a_target_knows_its_direction(diabetes):
    low = heroes.run(
        config(REGRESSION | {"federation.rounds": 30, "federation.target": 0.82}), model=build, data=diabetes
    )
    assert low.records[-1].stopped == "target rmse"
    means = [fmean(r.scores["rmse"] for r in low.records[n - 3 : n]) for n in range(3, len(low.records) + 1)]
    assert means[-1] <= 0.82
    assert all(mean > 0.82 for mean in means[:-1])
    high = heroes.run(
        config({"federation.target": 0.1, "objective.metrics": ("f1",)}),
        model=partial(build, outputs=2),
        data=clouds(),
    )
    assert (high.records[-1].stopped, high.records[-1].round) == ("target f1", 3)


def test_whole_rows_are_learned(diabetes):
    rows = [heroes.Examples(e.inputs, torch.stack([e.targets, -e.targets], dim=1)) for e in diabetes]
    run = heroes.run(config(REGRESSION), model=partial(build, outputs=2), data=tuple(rows))
    assert run.records[-1].missing == ()
    assert math.isfinite(run.records[-1].scores["rmse"])


def test_yes_or_no_from_one_output():
    changes = {"objective.name": "binary_cross_entropy", "objective.metrics": ("f1", "accuracy")}
    run = heroes.run(config(changes | {"federation.rounds": 10}), model=build, data=clouds())
    said, true = outputs_of(run, clouds()[1]) > 0, clouds()[1].targets == 1
    assert run.records[-1].scores["accuracy"] == float((said == true).double().mean())
    assert run.records[-1].scores["f1"] == pytest.approx(
        2 * int((said & true).sum()) / int(said.sum() + true.sum())
    )
    assert run.records[-1].scores["accuracy"] > 0.8


class Tokens(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(5, 6 * width)
        self.hidden = nn.Linear(6 * width, 6 * width)
        self.output = nn.Linear(6 * width, 5)

    def forward(self, tokens):
        return self.output(torch.relu(self.hidden(self.embedding(tokens))))


def test_the_next_token_is_learned():
    """After token n comes n + 1, and 0 after 4."""
    starts = torch.arange(60) % 5
    rows = (starts[:, None] + torch.arange(8)) % 5
    data = heroes.Examples(rows[:40, :-1], rows[:40, 1:]), heroes.Examples(rows[40:, :-1], rows[40:, 1:])
    run = heroes.run(
        config({"objective.name": "next_token", "federation.rounds": 12}), model=Tokens, data=data
    )
    first, last = run.records[0], run.records[-1]
    assert list(last.scores) == ["accuracy", "perplexity"]
    assert last.scores["perplexity"] == pytest.approx(math.exp(last.test_loss))
    assert last.scores["perplexity"] < first.scores["perplexity"]
    assert last.accuracy == 1.0


def test_label_smoothing_and_a_proximal_term_change_training_and_not_the_test():
    runs = [
        heroes.run(
            config({"strategy.name": "fedavg", **changes}), model=partial(build, outputs=2), data=clouds()
        )
        for changes in ({}, {"objective.label_smoothing": 0.2}, {"objective.proximal": 1.0})
    ]
    start = runs[0].federation.strategy.begin(heroes.seeds.number(0, "model")).tensors

    def moved(run):
        return math.sqrt(
            sum(float((t - start[name]).square().sum()) for name, t in run.state.tensors.items())
        )

    assert moved(runs[2]) < moved(runs[0])
    assert runs[1].records[0].loss > runs[0].records[0].loss
    assert len({run.records[-1].test_loss for run in runs}) == 3


def test_clients_train_with_adamw():
    changes = {"training.optimiser": "adamw", "training.learning_rate": 0.01, "federation.rounds": 8}
    changes |= {"strategy.pace": "constant"}
    run = heroes.run(config(changes), model=partial(build, outputs=2), data=clouds())
    assert run.records[-1].missing == ()
    assert run.records[-1].loss < run.records[0].loss / 2
    plain = config({"strategy.pace": "constant"})
    plain_sgd = heroes.run(plain, model=partial(build, outputs=2), data=clouds())
    assert run.records[0].duration == plain_sgd.records[0].duration  # the clock counts gradients


def half(outputs, targets):
    return 0.5 * nn.functional.mse_loss(outputs.squeeze(1), targets)


def test_a_loss_of_ones_own_is_named_and_needed_again(diabetes, tmp_path):
    own = {"loss": half, "metrics": {"worst": heroes.metric(worst, lower_is_better=True)}}
    fedavg = {"strategy.name": "fedavg"}  # its plans do not depend on how many rounds are left
    whole = heroes.run(config(fedavg), model=build, data=diabetes, out=tmp_path / "whole", **own)
    assert (whole.config.objective.name, whole.config.objective.metrics) == ("own", ("worst",))
    cut = config(fedavg | {"federation.rounds": 2})
    heroes.run(cut, model=build, data=diabetes, out=tmp_path / "cut", **own)
    for given, said in (
        ({"metrics": own["metrics"]}, r"your own loss: heroes.resume\(folder, loss=...\)"),
        ({"loss": half}, r"your own metrics \(worst\): heroes.resume\(folder, metrics=...\)"),
    ):
        with pytest.raises(ConfigError, match=said):
            heroes.resume(tmp_path / "cut", {"federation.rounds": 3}, model=build, data=diabetes, **given)
    resumed = heroes.resume(tmp_path / "cut", {"federation.rounds": 3}, model=build, data=diabetes, **own)
    assert [plain(r) for r in resumed.records[2:]] == [plain(r) for r in whole.records[2:]]


def test_a_loss_of_ones_own_alone_is_its_own_metric(diabetes):
    last = heroes.run(config(), model=build, data=diabetes, loss=half).records[-1]
    assert (last.metric, last.lower_is_better) == ("loss", True)
    assert last.scores == {"loss": last.test_loss}


class Moody:
    """Fails for batches with some example in them, but not where costs are measured."""

    def __init__(self):
        self.calls = 0

    def __call__(self, outputs, targets):
        self.calls += 1
        if self.calls > 4 and bool((targets > 2.0).any()) and torch.is_grad_enabled():
            raise RuntimeError("too ill")
        return half(outputs, targets)


def test_a_loss_that_fails_costs_only_those_clients(diabetes):
    changes = {"server.at_least": 0, "strategy.name": "fedavg", "strategy.tau": 1}
    run = heroes.run(config(changes), model=build, data=diabetes, loss=Moody())
    lost = [one for record in run.records for one in record.missing]
    answered = [c for record in run.records for c in record.clients if c.loss is not None]
    assert lost
    assert answered
    assert "Moody (your own loss) failed on outputs of shape (16, 1)" in lost[0].reason
    assert "too ill" in lost[0].reason


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda o, t: o - t, r"<lambda> \(your own loss\) gave torch.float32 of shape .*; it should give"),
        (lambda o, t: {}["x"], r"<lambda> \(your own loss\) failed on outputs of shape \(16, 1\)"),
        (lambda o, t: o.sum() * math.nan, "gave nan; it should give a tensor of one finite number"),
    ],
)
def test_a_loss_that_fails_for_everybody_is_one_sentence_at_the_start(diabetes, loss, said):
    with pytest.raises(DataError, match=said):
        heroes.run(config(), model=build, data=diabetes, loss=loss)


@pytest.mark.parametrize("engine", ["in_process", "processes"])
@pytest.mark.parametrize("metric", [lambda o, t: {}["x"], lambda o, t: o, lambda o, t: math.nan])
def test_a_metric_that_fails_is_one_sentence_on_every_engine(diabetes, engine, metric):
    with pytest.raises(TrainingError, match=r"metric 'odd' \(your own\) (failed|gave)"):
        heroes.run(
            config(REGRESSION | {"engine.name": engine, "engine.workers": 2}),
            model=build,
            data=diabetes,
            metrics={"odd": metric},
        )


class Unstarted(Bias):
    def start(self, outputs, targets):
        raise ValueError("no idea")


class Unfinished(Bias):
    def finish(self, statistic):
        raise ValueError("no idea")


@pytest.mark.parametrize(("metric", "place"), [(Unstarted(), "start"), (Unfinished(), "finish")])
def test_a_streamed_metric_that_fails_says_the_same_on_every_engine(diabetes, metric, place):
    said = []
    for engine in ("in_process", "processes"):
        changes = REGRESSION | {"engine.name": engine, "engine.workers": 2}
        with pytest.raises(TrainingError) as caught:
            heroes.run(config(changes), model=build, data=diabetes, metrics={"odd": metric})
        said.append(str(caught.value))
    why = f"metric 'odd' (your own) failed in {place}: ValueError: no idea"
    assert said == [f"the model could not be tested: {why}"] * 2


@pytest.mark.parametrize(
    ("changes", "own", "said"),
    [
        (
            {},
            {},
            r"mean_squared_error'?: the model's outputs have shape \(16, 3\)",
        ),
        ({"objective.name": "cross_entropy"}, {}, "'cross_entropy', but targets are torch.float32"),
        (
            {"data.partition": "gamma"},
            {},
            r"data.partition is 'gamma', .* float32 of shape \(342,\); use iid",
        ),
        ({"objective.metrics": ("fi",)}, {}, "objective.metrics has 'fi': did you mean 'f1'"),
        (
            {"federation.target_accuracy": 0.5},
            {},
            "accuracy is not measured: objective.metrics has rmse, mae",
        ),
        ({"objective.name": "own"}, {}, r"objective.name is 'own': heroes.run\(..., loss=...\) gives it"),
        ({}, {"loss": 3}, r"loss is a int; give a function of \(outputs, targets\)"),
        ({}, {"metrics": [worst]}, "metrics is a list; give a mapping"),
        ({}, {"metrics": {"rmse": worst}}, "'rmse', which is built in; call yours something else"),
        ({}, {"metrics": {"worst": 3}}, r"metrics\['worst'\] is a int"),
        (
            {"strategy.name": "heterofl", "strategy.label_split": True},
            {},
            "strategy.label_split need class labels, but targets are torch.float32",
        ),
    ],
)
def test_what_does_not_go_together_is_said(diabetes, changes, own, said):
    with pytest.raises((ConfigError, DataError), match=said):
        heroes.run(config(REGRESSION | changes), model=partial(build, outputs=3), data=diabetes, **own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"objective.name": "mean_squared_error", "objective.label_smoothing": 0.1},
            "no labels to smooth; use 0",
        ),
        (
            {"objective.name": "mean_squared_error", "objective.metrics": ("f1",)},
            "'f1', which does not fit 'mean_",
        ),
        ({"federation.target": 0.5, "federation.target_accuracy": 0.5}, "set one of them"),
    ],
)
def test_keys_that_disagree_are_said(changes, said):
    with pytest.raises(ConfigError, match=said):
        config(changes)


def test_clients_may_draw_examples_without_labels(diabetes):
    changes = REGRESSION | {"data.examples_per_client": 20, "federation.clients": 40}
    run = heroes.run(config(changes), model=build, data=diabetes)
    assert {c.samples for c in run.records[-1].clients} == {20}


def test_fedprox_by_the_objective_is_short_and_learns():
    text = EXAMPLE.read_text()
    code = [line for line in text.split('"""', 2)[2].splitlines() if line.strip() and '"""' not in line]
    assert len(code) <= 20
    spec = importlib.util.spec_from_file_location("own_objective", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.main()
    assert list(run.records[-1].scores) == ["worst_class", "accuracy"]
    assert run.records[-1].accuracy > 0.85
    assert run.config.objective.proximal == 0.1
