"""Plans made with what clients did before; the clock charges what they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from representatives import representatives, steps

import heroes
from heroes.errors import ConfigError
from heroes.federation import Stop
from heroes.fleet import FLEETS, Fleet, Foreseen, Today, VirtualClock
from heroes.fleet.devices import MEGABIT
from heroes.fleet.known import learned
from heroes.messages import Measurement
from heroes.rounds import begin, run, run_round
from heroes.runs.checkpoints import found
from heroes.runs.folder import CHECKPOINTS
from heroes.settings.config import Config
from heroes.settings.recipes import recipe
from heroes.strategies.base import SameTau
from heroes.strategies.registry import BUILT_IN

EXPECTED = {"fleet.foresight": "expected"}
PAPER = Fleet(FLEETS["paper"], 8, 1)
EVERYONE = np.arange(8)


def rounds(world, name, changes, count=4):
    return list(run(world.assembled(name, changes), Stop(count)))


@pytest.mark.parametrize("kind", ["paper", "mlab", "phones"])
def test_at_first_a_client_is_expected_to_be_as_its_class_is_in_the_mean(kind):
    fleet = Fleet(FLEETS[kind], 50, 1)
    expected = Foreseen(fleet).status(np.arange(50), 1)
    days = [fleet.status(np.arange(50), day) for day in range(1, 401)]
    for name in ("speed", "upload", "download"):
        seconds = np.mean([1 / getattr(day, name) for day in days], axis=0)
        assert np.mean(1 / getattr(expected, name)) == pytest.approx(np.mean(seconds), rel=0.05)
    speeds = [day.speed for day in days]
    assert expected.speed == pytest.approx(1 / np.mean(1 / np.array(speeds), axis=0), rel=0.04)
    assert (expected.devices, expected.fastest) == (days[0].devices, days[0].fastest)
    assert expected.usual.tolist() == days[0].usual.tolist() == expected.speed.tolist()


def test_what_is_expected_does_not_depend_on_the_round_but_on_what_a_client_did_before():
    fleet = Foreseen(PAPER)
    first = fleet.status(EVERYONE, 1)
    for other in (fleet.status(EVERYONE, 2), fleet.status(EVERYONE, 1, attempt=1, known={})):
        assert other.speed.tolist() == first.speed.tolist()
        assert other.upload.tolist() == first.upload.tolist()
    known = learned({}, [Measurement(3, 2e9, training=1.0, moved=100, besides=4.0)])
    known = learned(known, [Measurement(3, 4e9, training=1.0, moved=100, besides=6.0)])
    after = fleet.status(EVERYONE, 3, 0, known)
    assert after.speed[3] == 3e9
    assert after.overhead.tolist() == [0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0]
    assert np.isinf(after.upload[3])  # the same bytes each time: all of it is taken to be fixed
    others = EVERYONE != 3
    assert after.speed[others].tolist() == first.speed[others].tolist()
    assert after.download[others].tolist() == first.download[others].tolist()
    assert after.usual.tolist() == first.usual.tolist()  # widths stay


def test_the_clock_charges_what_clients_take_today(world):
    plan = [
        replace(world.assignment(client), round=5, attempt=1, tau=3, probe_seconds=0.0) for client in (6, 2)
    ]
    today = PAPER.status(np.array([6, 2]), 5, 1)
    clock = VirtualClock(today=Today(PAPER, lambda a: 6e9 * a.tau))
    timing = clock.elapse(plan, 2)
    computing = 18e9 / today.speed
    travelling = 20 / today.upload + 30 / today.download
    assert timing.finished.tolist() == pytest.approx((computing + travelling).tolist())
    assert timing.duration == pytest.approx((computing + travelling).max())
    assert [timing.spent[client][:2] for client in (6, 2)] == [
        pytest.approx(pair) for pair in zip(computing.tolist(), travelling.tolist(), strict=True)
    ]
    noted = {one.client: one for one in timing.measured}
    for n, client in enumerate((6, 2)):
        assert noted[client].flops / noted[client].training == pytest.approx(today.speed[n])
        assert (noted[client].moved, noted[client].besides) == (50, pytest.approx(travelling[n]))
    free = VirtualClock(today=Today(PAPER, lambda a: 6e9 * a.tau, count_download=False)).elapse(plan, 2)
    assert free.spent[6][1] == pytest.approx(20 / today.upload[0])
    assert {one.moved for one in free.measured} == {20}


@pytest.mark.parametrize(
    ("fit", "tau", "last"),
    [
        (5.0, 5, 1.0),
        (5.6, 6, 0.6),
        (5.2, 5, 1.0),
        (2.5, 3, 0.5),
        (0.3, 1, 1.0),
        (7.9, 8, 0.9),
        (11.0, 8, 1.0),
    ],
)
def test_who_goes_by_its_own_clock_does_the_steps_that_it_has_time_for_today(world, fit, tau, last):
    speed = float(PAPER.status(np.array([2]), 5).speed[0])
    today = Today(PAPER, lambda a: a.steps * speed / fit)  # so many of them take a second
    given = world.assignment(2, round=5, tau=4, step_seconds=0.25, probe_seconds=0.0)
    (found,) = VirtualClock(today=today).lived([replace(given, until=1.0)])
    assert (found.tau, found.last, found.until) == (tau, pytest.approx(last), None)
    assert found.compute_seconds == pytest.approx(given.compute_seconds)  # a deadline stays as planned
    (real,) = today.real([found])
    assert real.compute_seconds == pytest.approx((tau - 1 + last) / fit)
    assert VirtualClock(today=today).lived([given]) == (given,)  # the plan says how many
    assert VirtualClock().lived([replace(given, until=1.0)]) == (given,)  # the plan knew the day


def test_a_deadline_is_set_by_the_plan_and_met_or_missed_by_what_clients_take(world):
    plan = [world.assignment(client, probe_seconds=0.0, transfer_seconds=0.0) for client in (6, 2)]
    today = PAPER.status(np.array([6, 2]), 1)
    slow = int(np.argmin(today.speed))
    planned, work = 6.0, 6.0 * today.speed.max()  # 3 steps of 2 seconds; the quicker one just makes it
    fast = PAPER.status(np.array([6, 2]), 1).speed.argmax()
    clock = VirtualClock(deadline_factor=1.001, today=Today(PAPER, lambda a: work))
    (lost,) = clock.absent(plan, 2)
    assert (lost.client, lost.cause) == (plan[slow].client, "late")
    timing = clock.elapse(plan, 2)
    assert timing.duration == pytest.approx(1.001 * planned)
    assert [one.client for one in timing.measured] == [plan[fast].client]


@pytest.mark.parametrize("name", [name for name, kind in BUILT_IN.items() if kind.assign is SameTau.assign])
def test_where_plans_do_not_go_by_the_day_nothing_changes(world, name):
    exact, expected = (rounds(world, name, changes) for changes in ({}, EXPECTED))
    for (one, told), (two, tells) in zip(exact, expected, strict=True):
        assert all(torch.equal(one.tensors[key], two.tensors[key]) for key in one.tensors)
        assert two.seconds == pytest.approx(one.seconds, rel=1e-12)
        assert (told.loss, told.traffic, told.scores) == (tells.loss, tells.traffic, tells.scores)
        assert tells.waiting == pytest.approx(told.waiting, rel=1e-9)
        for a, b in zip(told.clients, tells.clients, strict=True):
            assert (a.client, a.device, a.width, a.tau) == (b.client, b.device, b.width, b.tau)
            assert b.compute_seconds == pytest.approx(a.compute_seconds)
            assert b.transfer_seconds == pytest.approx(a.transfer_seconds)
    assert exact[-1][0].measured == {}


def test_heroes_finishes_together_if_it_knows_the_day_or_if_clients_go_by_their_own_clocks(world):
    fast = [1e5, 2e5]  # only steps count
    varied = {"strategy.pace": "constant", "fleet.jitter": 0.3, "fleet.upload": fast, "fleet.download": fast}
    exact, own, expected = (
        [entry for _, entry in rounds(world, "heroes", changes | varied, 12)]
        for changes in ({}, EXPECTED, EXPECTED | {"strategy.own_clock": False})
    )
    share = [np.mean([e.waiting / e.duration for e in entries[1:]]) for entries in (exact, own, expected)]
    assert share[2] > 2 * max(share[:2])
    assert any(c.last < 1 for e in own for c in e.clients)
    assert all(c.last == 1 for e in (*exact, *expected) for c in e.clients)
    first = exact[0], expected[0]  # everyone does as many steps: the same seconds
    assert first[0].duration == pytest.approx(first[1].duration)
    fleet = world.assembled("heroes", varied).fleet
    for entry in expected:  # what was charged is the day's, whatever was planned
        day = fleet.status(np.array([c.client for c in entry.clients]), entry.round)
        travelled = [
            c.bytes_up / up + c.bytes_down / down
            for c, up, down in zip(entry.clients, day.upload, day.download, strict=True)
        ]
        assert [c.transfer_seconds for c in entry.clients] == pytest.approx(travelled)


def test_only_clients_that_were_in_are_known_afterwards(world):
    federation = world.assembled("heroes", EXPECTED | {"faults.dropout": 0.4})
    state, entry = run_round(federation, begin(federation))
    answered = {c.client for c in entry.clients if c.samples is not None}
    assert entry.missing
    assert set(state.measured) == answered
    speeds = federation.fleet.drawn.status(np.array([c.client for c in entry.clients]), 1).speed
    usual = federation.fleet.drawn.ordinary(np.array([c.client for c in entry.clients]))
    for c, speed, ordinary in zip(entry.clients, speeds, usual.speed, strict=True):
        if c.client in answered:
            assert state.measured[c.client][0] == pytest.approx(0.8 * ordinary + 0.2 * speed)


def test_a_stalled_client_is_known_as_slow(world):
    federation = world.assembled("fedavg", EXPECTED | {"faults.stall": 1.0, "faults.stall_factor": 4.0})
    state, entry = run_round(federation, begin(federation))
    clients = np.array([c.client for c in entry.clients])
    speeds = federation.fleet.drawn.status(clients, 1).speed
    usual = federation.fleet.drawn.ordinary(clients)
    wanted = 0.8 * usual.speed + 0.2 * speeds / 4
    assert [state.measured[client][0] for client in clients] == pytest.approx(wanted.tolist())
    sizes = [(c.bytes_up, c.bytes_down, c.transfer_seconds) for c in entry.clients]
    ordinary = [
        up / u + down / d for (up, down, _), u, d in zip(sizes, usual.upload, usual.download, strict=True)
    ]
    wanted = [0.8 * first + 0.2 * took for first, (_, _, took) in zip(ordinary, sizes, strict=True)]
    assert [state.measured[client][1] for client in clients] == pytest.approx(wanted)


@pytest.mark.parametrize("name", representatives())
def test_a_run_goes_on_with_the_same_bits(tmp_path, name):
    config = recipe("digits", name).changed(
        EXPECTED
        | {
            "engine.name": "in_process",
            "federation.clients": 6,
            "federation.cohort": 3,
            "federation.rounds": 4,
            "model.max_width": 2,
            "data.test_limit": 20,
        }
        | steps(name, 3)
    )
    whole = heroes.run(config, out=tmp_path / "run")
    assert whole.state.measured
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "records.jsonl").write_text("".join(lines[:3]))  # as if killed in the fourth round
    found(tmp_path / "run" / CHECKPOINTS)[0].unlink()
    resumed = heroes.resume(tmp_path / "run")
    assert resumed.state.measured == whole.state.measured
    assert all(torch.equal(resumed.state.tensors[key], value) for key, value in whole.state.tensors.items())
    assert [(r.seconds, r.waiting, r.clients) for r in resumed.records] == [
        (r.seconds, r.waiting, r.clients) for r in whole.records
    ]


def test_real_clients_are_always_planned_by_what_was_measured():
    with pytest.raises(ConfigError, match=r"fleet\.foresight is 'expected' but engine\.clock is 'wall'"):
        Config().changed(EXPECTED | {"engine.name": "flower", "engine.clock": "wall"})


def test_a_link_that_does_not_vary_is_expected_as_it_is():
    cohort = Foreseen(Fleet(FLEETS["equal"], 3, 0)).status(np.arange(3), 1)
    assert cohort.upload == pytest.approx(np.full(3, 3 * MEGABIT))
    assert cohort.download == pytest.approx(np.full(3, 15 * MEGABIT))
