from __future__ import annotations

import heroes
from heroes.settings.recipes import recipe

TINY = {
    "engine.name": "in_process",
    "federation.clients": 6,
    "federation.cohort": 3,
    "federation.rounds": 2,
    "data.test_limit": 20,
    "strategy.tau": 1,
}


def test_every_answer_of_a_round_is_told_and_changes_nothing() -> None:
    config = recipe("digits", "fedavg").changed(TINY)
    told: list[tuple[int, int, int]] = []
    watched = heroes.run(config, on_client=lambda *each: told.append(each))
    assert told == [(number, done, 3) for number in (1, 2) for done in range(4)]
    assert watched.records == heroes.run(config).records


def test_who_is_not_asked_is_not_waited_for() -> None:
    told: list[tuple[int, int, int]] = []
    config = recipe("digits", "fedavg").changed({**TINY, "faults.dropout": 0.5})
    (*_, last) = heroes.run(config, on_client=lambda *each: told.append(each)).records
    asked = 3 - sum(lost.cause == "dropout" for lost in last.missing)
    assert asked < 3
    assert told[-1] == (2, asked, asked)
