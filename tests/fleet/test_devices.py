"""Devices and links: a few arrays, drawn anew from the seed and the round."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heroes import seeds
from heroes.errors import ConfigError
from heroes.fleet import measured
from heroes.fleet.availability import Everybody
from heroes.fleet.clock import FixedClock, VirtualClock
from heroes.fleet.devices import FLEETS, MEGABIT, Device, Fleet, FleetKind, read_fleet
from heroes.messages import ServerState
from heroes.server.sampling import Uniform, sampled


def same(one, two):
    return all(
        np.array_equal(getattr(one, name), getattr(two, name)) for name in ("speed", "upload", "download")
    )


def test_the_status_depends_on_seed_and_round_only():
    everyone = np.arange(30)
    fleet = Fleet(FLEETS["paper"], 30, seed=1)
    first = fleet.status(everyone, 900)
    for number in range(1, 10):
        assert not same(fleet.status(everyone, number), first)
    assert same(fleet.status(everyone, 900), first)
    assert same(Fleet(FLEETS["paper"], 30, seed=1).status(everyone, 900), first)
    assert not same(Fleet(FLEETS["paper"], 30, seed=2).status(everyone, 900), first)


def test_a_client_keeps_its_device():
    fleet = Fleet(FLEETS["paper"], 40, seed=1)
    clients = np.array([3, 17, 39])
    assert fleet.status(clients, 1).devices == fleet.status(clients, 2).devices
    assert Fleet(FLEETS["paper"], 40, seed=2).device_of.tolist() != fleet.device_of.tolist()


def test_the_status_is_in_the_order_of_the_clients():
    fleet = Fleet(FLEETS["paper"], 40, seed=1)
    names = [device.name for device in FLEETS["paper"].devices]
    cohort = fleet.status(np.array([39, 0, 5]), 1)
    assert cohort.clients.tolist() == [39, 0, 5]
    assert list(cohort.devices) == [names[fleet.device_of[client]] for client in (39, 0, 5)]


@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=5).filter(lambda s: sum(s) > 0.1), st.integers(1, 300)
)
def test_device_classes_have_their_shares_up_to_whole_clients(shares, clients):
    kind = FleetKind("", tuple(Device(f"d{n}", 1e9, share) for n, share in enumerate(shares)))
    counts = np.bincount(Fleet(kind, clients, seed=3).device_of, minlength=len(shares))
    wanted = np.array(shares) / sum(shares) * clients
    assert counts.sum() == clients
    assert np.abs(counts - wanted).max() <= 1.0 + 1e-9


def test_the_papers_fleet_has_a_quarter_of_each_device_at_ten_to_forty_gigaflops():
    fleet = Fleet(FLEETS["paper"], 100, seed=0)
    assert np.bincount(fleet.device_of).tolist() == [25, 25, 25, 25]
    assert fleet.flops.tolist() == [10e9, 20e9, 30e9, 40e9]
    assert (fleet.fastest, len(fleet)) == (40e9, 100)


def test_links_are_spread_evenly_over_their_ranges():
    fleet = Fleet(FLEETS["paper"], 4000, seed=0)
    cohort = fleet.status(np.arange(4000), 1)
    for found, (low, high) in ((cohort.upload, (1, 5)), (cohort.download, (10, 20))):
        megabits = found / MEGABIT
        assert low <= megabits.min() < low + 0.05
        assert high - 0.05 < megabits.max() <= high
        assert megabits.mean() == pytest.approx((low + high) / 2, rel=0.03)
    assert abs(np.corrcoef(cohort.upload, cohort.download)[0, 1]) < 0.08


def test_a_megabit_is_125000_bytes():
    assert MEGABIT == 125_000


def test_step_times_deviate_by_a_tenth():
    fleet = Fleet(FLEETS["paper"], 4000, seed=0)
    times = fleet.flops[fleet.device_of] / fleet.status(np.arange(4000), 1).speed
    assert times.mean() == pytest.approx(1.0, abs=0.01)
    assert times.std() == pytest.approx(0.1, rel=0.05)


def test_speeds_are_positive_and_finite_however_much_they_vary():
    kind = FleetKind("", (Device("wild", 1e9),), jitter=2.0)
    speed = Fleet(kind, 2000, seed=0).status(np.arange(2000), 1).speed
    assert (speed > 0).all()
    assert speed.max() <= 10e9


def test_equal_devices_do_not_vary():
    cohort = Fleet(FLEETS["equal"], 9, seed=0).status(np.arange(9), 4)
    assert set(cohort.speed) == {30e9}
    assert set(cohort.upload) == {3 * MEGABIT}
    assert set(cohort.download) == {15 * MEGABIT}


def drawn(fleet, number):
    """Ten of everybody, as in a round of this number."""
    rng = seeds.stream(0, "sampling", number)
    everybody = Everybody().candidates(len(fleet), 0.0)
    return sampled(Uniform(), ServerState(0, {}, None), everybody, 10, rng)


def test_a_million_clients_are_a_few_arrays():
    tracemalloc.start()
    fleet = Fleet(FLEETS["paper"], 1_000_000, seed=0)
    for number in range(1, 4):
        fleet.status(drawn(fleet, number), number)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4e6
    assert peak < 100e6


def test_a_round_lasts_as_long_as_its_slowest_client(world):
    plan = [world.assignment(0, tau=1), world.assignment(1, tau=3)]
    timing = VirtualClock().elapse(plan, 2)
    assert timing.duration == 11.0  # 3 steps of 2 s, 1 s of probes, 4 s of transfer
    assert timing.finished.tolist() == [7.0, 11.0]
    assert timing.waiting.tolist() == [4.0, 0.0]


def test_the_fixed_clock_says_the_same_for_all(world):
    timing = FixedClock(2.5).elapse([world.assignment(0), world.assignment(1)], 2)
    assert (timing.duration, timing.waiting.tolist()) == (2.5, [0.0, 0.0])


def test_measured_links_have_the_measured_quantiles_and_correlation():
    fleet = Fleet(FLEETS["mlab"], 20_000, seed=0)
    cohort = fleet.status(np.arange(20_000), 1)
    up, down = cohort.upload / MEGABIT, cohort.download / MEGABIT
    assert np.median(up) == pytest.approx(measured.UPLOAD_MBPS[16], rel=0.05)
    assert np.quantile(down, 0.25) == pytest.approx(measured.DOWNLOAD_MBPS[8], rel=0.05)
    assert measured.UPLOAD_MBPS[0] <= up.min() < up.max() <= measured.UPLOAD_MBPS[-1]
    ranks = np.corrcoef(np.argsort(np.argsort(up)), np.argsort(np.argsort(down)))[0, 1]
    assert ranks == pytest.approx(6 / np.pi * np.arcsin(measured.LINK_CORRELATION / 2), abs=0.03)


def test_phones_have_speeds_of_their_own_that_fit_their_names():
    fleet = Fleet(FLEETS["phones"], 4000, seed=0)
    speeds = fleet.speed_of(np.arange(4000))
    assert len(np.unique(speeds)) > 3000
    assert np.median(speeds) == pytest.approx(10e9, rel=0.05)
    for slower, faster in ((0, 1), (1, 2), (2, 3)):
        assert speeds[fleet.device_of == slower].max() <= speeds[fleet.device_of == faster].min() * 1.0001
    assert np.array_equal(fleet.speed_of(np.array([5, 9])), speeds[[5, 9]])


def test_a_users_own_fleet_from_csv(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("device,gflops,share,upload_mbps,download_mbps\ncamera,2,3,1.5,8\ngateway,50,1,,\n")
    kind = read_fleet(file)
    fleet = Fleet(kind, 40, seed=0)
    assert np.bincount(fleet.device_of).tolist() == [30, 10]
    cohort = fleet.status(np.arange(40), 1)
    camera = fleet.device_of == 0
    assert np.unique(cohort.upload[camera]).tolist() == [1.5 * MEGABIT]
    assert 1.0 * MEGABIT <= cohort.upload[~camera].min() < cohort.upload[~camera].max() <= 5.0 * MEGABIT


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "needs rows"),
        ("device,speed\na,1\n", "columns device and gflops"),
        ("device,gflops\na,fast\n", r"line 2 .* gflops is 'fast'; it should be a number above 0"),
        ("device,gflops\na,1\nb,-1\n", "line 3"),
        ("device,gflops\na,\n", "has no gflops"),
        ("device,gflops,share\na,1,nan\n", "share is 'nan'"),
        ("device,gflops,joules_per_flop\na,1,2\n", r"joules_per_flop is '2'; .* from 1e-18 to 1"),
        ("device,gflops,joules_per_flop\na,1,1e-9\nb,1,\n", "line 3 .* has no joules_per_flop, but others"),
        ("device,gflops,joules_per_byte_up\na,1,1e-6\n", "what a byte costs, but has no joules_per_flop"),
    ],
)
def test_a_broken_fleet_file_is_refused_with_its_line(tmp_path, content, said):
    file = tmp_path / "bad.csv"
    file.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_fleet(file)


def test_a_missing_fleet_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the fleet .*gone\.csv"):
        read_fleet(tmp_path / "gone.csv")
