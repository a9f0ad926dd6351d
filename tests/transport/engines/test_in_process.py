"""The reference engine: one client after the other, on one thread; a failing client does not end the run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from heroes.client.evaluation import Tally, chunks, evaluate, tally, total
from heroes.client.objectives import CLASSIFICATION
from heroes.client.training import LocalSettings, Trainer
from heroes.data import FederatedData
from heroes.errors import TrainingError
from heroes.messages import Lost, Score, Task
from heroes.rounds import run_round
from heroes.slices.cuts import cut_out
from heroes.transport.engines.in_process import FunctionEngine, InProcessEngine


@dataclass(frozen=True)
class Fails:
    """A transform that cannot deal with marked examples."""

    def __call__(self, stored, rng):
        if bool((stored == 99.0).any()):
            raise ValueError("marked\n  example")
        return stored


def test_training_and_what_is_done_with_updates_meanwhile_run_on_one_thread(world):
    federation = world.federation()
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        state = federation.strategy.begin(0)
        task = Task(
            world.assignment(1),
            cut_out(state.tensors, federation.strategy.cut(world.assignment(1).selection)),
            5,
        )
        answers = federation.engine.run([world.assignment(1)], lambda _: task)
        assert next(answers).client == 1
        assert torch.get_num_threads() == 1
        assert list(answers) == []
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_an_error_inside_a_client_loses_that_client_with_its_reason(world):
    federation = world.federation(clients=6, cohort=6)
    data = federation.engine.data
    inputs = data.train.inputs.clone()
    inputs[torch.from_numpy(data.shares[2])] = 99.0
    broken = FederatedData(replace(data.train, inputs=inputs, transform=Fails()), data.test, data.shares)
    _, entry = run_round(
        replace(federation, engine=InProcessEngine(federation.engine.trainer, broken)),
        federation.strategy.begin(0),
    )
    assert entry.missing == (Lost(2, "ValueError: marked example"),)
    assert sum(client.loss is not None for client in entry.clients) == 5


def test_an_interrupt_inside_a_client_is_no_loss_but_an_interrupt(world):
    def interrupted(stored, rng):
        raise KeyboardInterrupt

    data = world.data()
    engine = InProcessEngine(
        Trainer(world.family(), LocalSettings()),
        replace(data, train=replace(data.train, transform=interrupted)),
    )
    with pytest.raises(KeyboardInterrupt):
        run_round(world.federation(engine=engine), world.strategy("heroes").begin(0))


@pytest.mark.parametrize("name", ["heroes", "fedavg", "adp", "heterofl", "flanc"])
def test_a_score_is_that_of_the_plain_model(world, name):
    federation = world.federation(world.strategy(name))
    strategy, family, test = federation.strategy, federation.family, federation.engine.data.test
    state = strategy.begin(3)
    for width in strategy.widths:
        plain = family.dense(width)
        plain.load(family.plain_weights(cut_out(state.tensors, strategy.cut(strategy.selection(width)))))
        scores = plain.module(test.inputs).detach()
        score = federation.score(state, width)()
        assert score.accuracy == float((scores.argmax(1) == test.targets).double().mean())
        assert score.loss == pytest.approx(
            float(torch.nn.functional.cross_entropy(scores, test.targets)), rel=1e-5
        )


@pytest.mark.parametrize("batch_size", [1, 7, 20, 60, 1000])
def test_a_score_counts_every_example_once_whatever_the_chunks(world, batch_size):
    model = world.family().dense(2)
    examples = world.examples(60, seed=4)
    device = torch.device("cpu")
    aim = CLASSIFICATION
    parts = [tally(model, examples, chunk, batch_size, device, aim) for chunk in chunks(examples, batch_size)]
    assert all(sum(part.statistics[n][1] for part in parts) == 60 for n in (0, 1))  # of the loss, of accuracy
    whole, at_once = (evaluate(model, examples, size, device, aim) for size in (batch_size, 60))
    assert total(aim, parts) == whole
    assert whole.accuracy == at_once.accuracy
    assert whole.loss == pytest.approx(at_once.loss, rel=1e-6)


def test_a_model_that_cannot_be_loaded_for_its_test_is_one_sentence(world):
    federation = world.federation()
    with pytest.raises(TrainingError, match=r"^the model could not be tested: KeyError: "):
        federation.engine.score({}, 2)()


def test_losses_are_added_in_double_precision():
    found = total(CLASSIFICATION, [Tally([[1e9, 2], [1, 2]]), Tally([[1e-3, 2], [0, 2]])])
    assert found == Score((1e9 + 1e-3) / 4, {"accuracy": 0.25}) != Score(1e9 / 4, {"accuracy": 0.25})


def test_a_function_engine_scores_by_its_function(world):
    federation = world.federation(
        engine=FunctionEngine(lambda task: None, lambda tensors, width: Score(1.0, {"accuracy": width / 4}))
    )
    assert federation.score(federation.strategy.begin(0), 2)() == Score(1.0, {"accuracy": 0.5})
