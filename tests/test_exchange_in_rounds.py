"""Tensors that travel with fewer bits, through whole rounds: bytes, clock, seeds, error feedback and accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from heroes.assemble import assemble, stop_rule
from heroes.recipes import digits
from heroes.rounds import run

SCHEMES = ["heroes", "fedavg", "adp", "heterofl", "flanc"]


def digits_accuracy(name, seed, rounds, up, down):
    """Accuracy of the complete model at the end of a digits run."""
    bits = {"exchange.up_bits": up, "exchange.down_bits": down}
    config = digits(rounds=rounds, seed=seed).changed({"strategy.name": name, "training.device": "cpu"} | bits)
    *_, (_, last) = run(assemble(config), stop_rule(config), evaluate_every=rounds, every_width=False)
    return last.accuracy


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCHEMES)
def test_over_seeds_no_scheme_loses_two_points_on_digits_to_fewer_bits(name, record_property):
    full = [digits_accuracy(name, seed, 40, 32, 32) for seed in range(3)]
    few = [digits_accuracy(name, seed, 40, 4, 8) for seed in range(3)]
    record_property("accuracy_32_32", full)
    record_property("accuracy_4_8", few)
    assert np.mean(few) >= np.mean(full) - 0.02
