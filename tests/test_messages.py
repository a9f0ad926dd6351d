"""The nouns of a round: frozen, adding up, and ready for JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from heroes import messages
from heroes.messages import Cohort, Lost, RoundRecord, Selection, plain
from heroes.planning.pacing import Estimates
from heroes.rounds import run_round


def test_the_seconds_of_an_assignment_are_steps_probes_and_transfer(world):
    assignment = world.assignment(tau=3, step_seconds=2.0, probe_seconds=1.0, transfer_seconds=4.0)
    assert assignment.compute_seconds == 7.0
    assert assignment.seconds == 11.0


def test_every_message_is_frozen():
    kinds = [kind for kind in vars(messages).values() if dataclasses.is_dataclass(kind)]
    assert {Cohort, Selection, RoundRecord} <= set(kinds)
    assert all(kind.__dataclass_params__.frozen for kind in kinds)


def test_a_message_cannot_be_changed(world):
    with pytest.raises(dataclasses.FrozenInstanceError):
        world.assignment().tau = 5


def test_a_cohort_is_as_long_as_its_clients():
    ones = np.ones(3)
    assert len(Cohort(np.arange(3), ("a", "b", "c"), ones, ones, ones, ones, 1.0, ones)) == 3


def test_plain_values_are_nested_dicts_and_lists():
    facts = {"counters": (1, 2), "estimates": Estimates(0.5, smoothness=2.0)}
    found = plain({"facts": facts, 4: (Lost(3, "no answer"),)})
    assert found["facts"]["counters"] == [1, 2]
    assert found["facts"]["estimates"] == dataclasses.asdict(Estimates(0.5, smoothness=2.0))
    assert found["4"] == [{"client": 3, "reason": "no answer", "cause": "failed", "arrived": False}]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_numbers_that_json_cannot_hold_become_none(value):
    assert plain(Estimates(value))["loss"] is None


def test_a_real_record_survives_json(world):
    federation = world.federation()
    _, entry = run_round(federation, federation.strategy.begin(0))
    found = json.loads(json.dumps(plain(entry), allow_nan=False))
    assert found.keys() == {field.name for field in dataclasses.fields(RoundRecord)}
    assert found["round"] == 1
    assert found["seconds"] == entry.seconds
    assert found["facts"]["counters"] == list(entry.facts["counters"])
    assert [c["pieces"] for c in found["clients"]] == [list(c.pieces) for c in entry.clients]


def test_messages_are_imported_without_torch():
    code = "import sys, heroes.messages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
