"""Joules: FLOPs and bytes times what one costs, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heroes
from heroes.fleet import FLEETS, LTE, WIFI, Fleet, read_fleet
from heroes.fleet.energy import Energy, Price
from heroes.messages import Assignment, RoundRecord, Selection

SMALL = {
    "federation.clients": 8,
    "federation.cohort": 4,
    "federation.rounds": 2,
    "model.max_width": 1,
    "data.test_limit": 30,
    "training.device": "cpu",
    "engine.name": "in_process",
    "fleet.name": "equal",
}


def small(**changes: Any) -> heroes.Config:
    return heroes.recipes.digits().changed(SMALL | changes)


def test_a_price_is_flops_and_bytes_times_what_one_costs() -> None:
    cohort = Fleet(FLEETS["equal"], 2, seed=0).status(np.array([1]), 1)
    energy = Energy(
        np.array([0, 1], dtype=np.int16),
        per_flop=np.array([9.0, 2e-9]),
        per_byte_up=np.array([9.0, 3e-6]),
        per_byte_down=np.array([9.0, 1e-6]),
    )
    given = Assignment(1, 1, "laptop", Selection(1), 10, 0.1, 0.2, 0.5, 7.0, bytes_down=2000, bytes_up=1000)
    (price,) = energy.prices(cohort, [given])
    # 10 steps of 0.2 s and 0.5 s of probes at 30 GFLOP/s are 75 GFLOP
    assert price.training == pytest.approx(150.0)
    assert (price.up, price.down) == (pytest.approx(0.003), pytest.approx(0.002))


def test_what_a_client_used_depends_on_how_far_it_came() -> None:
    price = Price(training=10.0, up=2.0, down=1.0)
    assert price.spent(1.0, sent=True) == 13.0
    assert price.spent(0.5, sent=False) == 6.0
    assert price.spent(0.0, sent=False) == 1.0


def test_every_built_in_fleet_says_what_it_uses() -> None:
    for name, kind in FLEETS.items():
        assert Fleet(kind, 10, seed=0).energy is not None, name
    tx2, nx, laptop, agx = (device.joules_per_flop for device in FLEETS["paper"].devices)
    assert (tx2, nx, laptop, agx) == (1.5e-9, 0.75e-9, 1.5e-9, 0.75e-9)
    assert [round(1e6 * joules, 1) for joules in (*WIFI, *LTE)] == [
        2.7,
        1.2,
        7.6,
        1.1,
    ]  # J/MB, as in the docs


def test_a_users_own_fleet_may_say_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("device,gflops,joules_per_flop,joules_per_byte_up\ncamera,2,1e-9,4e-6\n")
    (device,) = read_fleet(tmp_path / "a.csv").devices
    assert (device.joules_per_flop, device.joules_per_byte) == (1e-9, (4e-6, WIFI[1]))
    (tmp_path / "b.csv").write_text("device,gflops\ncamera,2\n")
    run = heroes.run(small(**{"fleet.csv": str(tmp_path / "b.csv")}))
    assert [record.energy for record in run.records] == [None, None]
    assert run.summary().energy is None


def spent(record: RoundRecord) -> list[float]:
    """On laptops at 30 GFLOP/s and 1.5 J/GFLOP."""
    return [
        c.compute_seconds * 30e9 * 1.5e-9 + c.bytes_up * WIFI[0] + c.bytes_down * WIFI[1]
        for c in record.clients
    ]


def test_records_say_what_every_client_used() -> None:
    run = heroes.run(small())
    for record in run.records:
        assert [client.energy for client in record.clients] == pytest.approx(spent(record))
        assert record.energy == pytest.approx(sum(spent(record)))
    assert run.summary().energy == pytest.approx(sum(sum(spent(record)) for record in run.records))


def test_lost_clients_are_charged_as_far_as_they_came_and_rounds_begun_again_count() -> None:
    faults = {"faults.dropout": 0.3, "faults.crash": 0.3, "federation.rounds": 6, "server.at_least": 2}
    run = heroes.run(small(**faults))
    seen: set[str] = set()
    for record in run.records:
        causes = {lost.client: lost.cause for lost in record.missing}
        for client in record.clients:
            share = {"dropout": 0.0, "crash": 0.5}.get(causes.get(client.client, ""), 1.0)
            training = share * client.compute_seconds * 30e9 * 1.5e-9
            bytes_ = client.bytes_up * WIFI[0] + client.bytes_down * WIFI[1]
            assert client.energy == pytest.approx(training + bytes_)
        seen |= set(causes.values()) | ({"again"} if record.abandoned else set())
        own = sum(client.energy or 0.0 for client in record.clients)
        before = sum(attempt.energy or 0.0 for attempt in record.abandoned)
        assert record.energy == pytest.approx(own + before)
    assert seen == {"dropout", "crash", "again"}, "the seed should show all of them"
