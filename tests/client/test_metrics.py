"""Metrics over whole test sets, against numbers computed by hand and by scikit-learn."""

from __future__ import annotations

import math
from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.client.losses import BinaryCrossEntropy, CrossEntropy, MeanSquaredError, NextToken, OwnLoss
from heroes.client.metrics import F1, METRICS, Accuracy, Mae, Perplexity, Rmse, Streamed, metric, own_metric
from heroes.errors import ConfigError, TrainingError


def over(metric, outputs, targets, size):
    """The value from chunks of this size."""
    parts = [metric.start(outputs[n : n + size], targets[n : n + size]) for n in range(0, len(targets), size)]
    return metric.finish(reduce(metric.merge, parts))


def scores(answers, classes):
    return torch.nn.functional.one_hot(torch.tensor(answers), classes).float()


def test_f1_over_the_whole_set_is_not_the_mean_of_batches():
    said, true = [1, 0, 0, 0, 1, 1], torch.tensor([1, 0, 0, 1, 0, 1])
    f1, outputs = F1(CrossEntropy()), scores(said, 2)
    whole = (
        2 * 2 / (3 + 3) + 2 * 2 / (3 + 3)
    ) / 2  # both classes: two right, said three times, true three times
    assert over(f1, outputs, true, 6) == over(f1, outputs, true, 3) == over(f1, outputs, true, 1) == whole
    first, second = (over(f1, outputs[n : n + 3], true[n : n + 3], 3) for n in (0, 3))
    assert (first, second) == (1.0, (0.0 + 2 * 1 / (2 + 2)) / 2)
    assert (first + second) / 2 == 0.625 < whole


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.integers(1, 9))
def test_f1_is_scikit_learns_whatever_the_chunks(pairs, size):
    from sklearn.metrics import f1_score

    said, true = map(list, zip(*pairs, strict=True))
    found = over(F1(CrossEntropy()), scores(said, 4), torch.tensor(true), size)
    assert found == pytest.approx(f1_score(true, said, average="macro", zero_division=0.0))


def test_f1_of_yes_and_no_counts_yes_in_every_output():
    outputs = torch.tensor([[1.0, -1.0], [1.0, -1.0], [-1.0, 2.0]])
    targets = torch.tensor([[1, 0], [0, 0], [1, 1]])
    assert over(F1(BinaryCrossEntropy()), outputs, targets, 2) == (2 * 1 / (2 + 2) + 1.0) / 2
    one = F1(BinaryCrossEntropy())
    assert over(one, outputs[:, :1], targets[:, 0], 2) == 0.5
    assert over(one, -torch.ones(2), torch.zeros(2), 1) == 0.0  # nothing is said, nothing is true


def test_accuracy_counts_classes_tokens_and_yes_or_no():
    assert over(Accuracy(CrossEntropy()), scores([0, 1, 2], 3), torch.tensor([0, 2, 2]), 2) == 2 / 3
    assert over(Accuracy(BinaryCrossEntropy()), torch.tensor([1.0, -1.0]), torch.tensor([0, 0]), 1) == 0.5
    tokens = torch.stack([scores([0, 1], 2), scores([1, 1], 2)])
    assert over(Accuracy(NextToken()), tokens, torch.tensor([[0, 1], [1, 0]]), 1) == 0.75
    assert over(Accuracy(OwnLoss(print)), scores([0, 1, 2], 3), torch.tensor([0, 2, 2]), 2) == 2 / 3


def test_errors_are_taken_over_all_values_before_the_root():
    outputs, targets = torch.zeros(4, 1), torch.tensor([1.0, 1.0, 1.0, 5.0])
    assert over(Rmse(MeanSquaredError()), outputs, targets, 3) == math.sqrt(28 / 4)
    assert over(Mae(MeanSquaredError()), outputs, targets, 3) == 2.0
    batches = [over(Rmse(MeanSquaredError()), outputs[a:b], targets[a:b], 9) for a, b in ((0, 3), (3, 4))]
    assert sum(batches) / 2 == 3.0 != math.sqrt(7)


def test_perplexity_is_that_of_the_mean_loss():
    outputs, targets = torch.zeros(3, 2, 8), torch.zeros(3, 2, dtype=torch.int64)
    assert over(Perplexity(NextToken()), outputs, targets, 2) == pytest.approx(8.0)
    assert Perplexity(NextToken()).finish([1e6, 1]) == math.inf
    assert math.isnan(Perplexity(NextToken()).finish([math.nan, 1]))


def test_which_are_better_low():
    low = {name for name, make in METRICS.items() if make(CrossEntropy()).lower_is_better}
    assert low == {"loss", "perplexity", "rmse", "mae"}


def test_errors_need_outputs_like_their_targets():
    with pytest.raises(TrainingError, match=r"metric 'rmse': .* \(2, 3\) and the targets \(2,\)"):
        Rmse(OwnLoss(print)).start(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))


class Largest:
    """The largest output: streams."""

    lower_is_better = True

    def start(self, outputs, targets):
        return (float(outputs.max()),)

    def merge(self, first, second):
        return max(first, second)

    def finish(self, statistic):
        return statistic[0]


def test_metrics_of_ones_own_know_their_direction_and_stream_if_they_can():
    streams = own_metric("largest", Largest())
    assert isinstance(streams, Streamed)
    assert streams.lower_is_better
    assert over(streams, torch.tensor([1.0, 3.0, 2.0]), torch.zeros(3), 1) == 3.0
    told = own_metric("gap", metric(lambda o, t: (o - t).abs().max(), lower_is_better=True))
    assert (told.lower_is_better, told.of(torch.tensor([1.0, 3.0]), torch.zeros(2))) == (True, 3.0)
    assert not own_metric("plain", lambda o, t: 1).lower_is_better


def broken(outputs, targets):
    raise ValueError("odd")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            broken,
            r"metric 'm' \(your own\) failed on outputs of shape \(2,\), targets of \(2,\): ValueError: odd",
        ),
        (lambda o, t: o, r"gave a Tensor of shape \(2,\); it should give one number"),
        (lambda o, t: "good", "gave a str; it should give one number"),
        (lambda o, t: None, "gave a NoneType; it should give one number"),
        (lambda o, t: math.nan, "gave nan; it should give a number"),
    ],
)
def test_a_metric_of_ones_own_that_is_wrong_is_named(function, said):
    with pytest.raises(TrainingError, match=said):
        own_metric("m", function).of(torch.zeros(2), torch.zeros(2))


def test_a_metric_is_not_to_blame_for_a_model_that_diverged():
    assert math.isnan(own_metric("m", lambda o, t: o.mean()).of(torch.tensor([math.nan]), torch.zeros(1)))


def test_a_statistic_must_be_able_to_travel():
    class Tensors(Largest):
        def start(self, outputs, targets):
            return outputs

    with pytest.raises(TrainingError, match=r"'m' \(your own\) gave a statistic that is not made of plain"):
        own_metric("m", Tensors()).start(torch.zeros(2), torch.zeros(2))


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (3, r"metrics\['m'\] is a int; give a function of \(outputs, targets\)"),
        (metric(print, lower_is_better="yes"), "lower_is_better is 'yes'; it should be True or False"),
    ],
)
def test_what_is_no_metric_is_refused(given_, said):
    with pytest.raises(ConfigError, match=said):
        own_metric("m", given_)
