"""Devices and links. A fleet is a few arrays; a round's draws depend on the seed and the round only."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from heroes import seeds
from heroes.contracts import Known
from heroes.errors import ConfigError
from heroes.fleet import measured
from heroes.fleet.energy import WIFI, Energy, Pair
from heroes.messages import Cohort, Floats, Integers
from heroes.seeds import Seed

MEGABIT = 1e6 / 8  # bytes
_SMALLEST, _LARGEST = 1e-9, 1e9  # numbers in a file; with these, nothing overflows
_JOULES = 1e-18, 1.0  # of a FLOP or a byte
_ENERGY = "joules_per_flop", "joules_per_byte_up", "joules_per_byte_down"
_MOST_DEVICES = 32_767


Range = tuple[float, float]


@dataclass(frozen=True)
class Device:
    """A class of device: its sustained training speed, its share of the clients, its own links."""

    name: str
    flops: float  # per second
    share: float = 1.0
    upload: Range | None = None  # Mb/s, instead of the fleet's
    download: Range | None = None
    joules_per_flop: float | None = None  # None: not known
    joules_per_byte: Pair = WIFI  # up, down


@dataclass(frozen=True)
class FleetKind:
    """A named kind of fleet.

    Link speeds in Mb/s are drawn anew for every client and round: evenly from a range, or from measured
    pairs. With `speeds` (quantiles of FLOP/s) every client has a speed of its own, and `devices` only names
    the parts of that distribution.
    """

    summary: str
    devices: tuple[Device, ...]
    upload: Range = (1.0, 5.0)
    download: Range = (10.0, 20.0)
    jitter: float = 0.1  # deviation of the step time around its mean
    measured_links: bool = False
    speeds: tuple[float, ...] | None = None


def _powered(name: str, flops: float, watts: float) -> Device:
    """A device that takes so many watts while it trains."""
    return Device(name, flops, joules_per_flop=watts / flops)


def _four(unit: float, watts: Mapping[str, float]) -> tuple[Device, ...]:
    each = zip(watts.items(), (1.0, 2.0, 3.0, 4.0), strict=True)
    return tuple(_powered(name, factor * unit, power) for (name, power), factor in each)


_PAPER = _four(10e9, {"TX2": 15.0, "Xavier NX": 15.0, "laptop": 45.0, "AGX Xavier": 30.0})
_MEDIAN_PHONE = 10e9  # FLOP/s in sustained training, an assumption; the spread around it is measured
_PHONE_WATTS = 4.0  # what a phone can get rid of for long, an assumption
_PHONES = tuple(
    _powered(name, _MEDIAN_PHONE * measured.PHONE_SPEED[middle], _PHONE_WATTS)
    for name, middle in (("slow phone", 4), ("modest phone", 12), ("good phone", 20), ("fast phone", 28))
)

FLEETS: dict[str, FleetKind] = {
    "paper": FleetKind(
        "the paper's devices, 10 to 40 GFLOP/s in training, a quarter of the clients each", _PAPER
    ),
    "boards": FleetKind(
        "the same fourfold spread at 1/100 of the speed: small boards, for models as small as the digits one",
        _four(0.1e9, dict.fromkeys(("board-1", "board-2", "board-3", "board-4"), 4.0)),
    ),
    "mlab": FleetKind(
        "the paper's devices on links measured by M-Lab: uploads from 0.1 to 260 Mb/s",
        _PAPER,
        measured_links=True,
    ),
    "phones": FleetKind(
        "phones as fast as AI-Benchmark found 333 of them, on links measured by M-Lab",
        _PHONES,
        measured_links=True,
        speeds=tuple(_MEDIAN_PHONE * speed for speed in measured.PHONE_SPEED),
    ),
    "equal": FleetKind(
        "one kind of device on one kind of link: no heterogeneity",
        (_PAPER[2],),
        (3.0, 3.0),
        (15.0, 15.0),
        0.0,
    ),
}


class Fleet:
    """The clients' devices and links."""

    def __init__(self, kind: FleetKind, clients: int, seed: Seed) -> None:
        self.kind = kind
        self.seed = seed
        self.device_of = _deal(
            np.array([device.share for device in kind.devices]),
            clients,
            seeds.stream(seed, "fleet", "devices"),
        )
        self.flops = np.array([device.flops for device in kind.devices])
        self._place = None  # of every client within its part of the distribution of speeds
        if kind.speeds is not None:
            self._place = seeds.stream(seed, "fleet", "speeds").random(clients, dtype=np.float32)
        self._upload = np.array([device.upload or kind.upload for device in kind.devices]).T
        self._download = np.array([device.download or kind.download for device in kind.devices]).T
        tables = [self._upload, self._download]
        if kind.measured_links:
            tables = [np.array(table)[:, None] for table in (measured.UPLOAD_MBPS, measured.DOWNLOAD_MBPS)]
        self._usual_links = [np.broadcast_to(usual_speed(table), len(self.flops)) for table in tables]

    def __len__(self) -> int:
        return len(self.device_of)

    @property
    def fastest(self) -> float:
        """FLOP/s of the fastest device class."""
        return float(self.flops.max())

    @property
    def energy(self) -> Energy | None:
        """What FLOPs and bytes cost the clients in joules; None if it is not known of every device."""
        devices = self.kind.devices
        flops = [device.joules_per_flop for device in devices if device.joules_per_flop is not None]
        if len(flops) < len(devices):
            return None
        up, down = np.array([device.joules_per_byte for device in devices]).T
        return Energy(self.device_of, np.array(flops), up, down)

    def speed_of(self, clients: Integers) -> Floats:
        """Mean FLOP/s of these clients."""
        classes = self.device_of[clients]
        if self._place is None or self.kind.speeds is None:
            return self.flops[classes]
        where = (classes + self._place[clients]) / len(self.flops)
        return quantile(self.kind.speeds, where.astype(np.float64))

    def status(
        self, clients: Integers, round_number: int, attempt: int = 0, known: Known | None = None
    ) -> Cohort:
        """The status of these clients at the start of a round, or of another attempt at it.

        `known` is ignored: speeds are drawn, not measured.
        """
        rng = seeds.stream(self.seed, "fleet", "round", round_number, *([attempt] if attempt else []))
        usual = self.ordinary(clients)
        jitter = _truncated_normal(rng, self.kind.jitter, len(clients))
        upload, download = self._links(rng, self.device_of[clients])
        return replace(
            usual, speed=usual.speed / jitter, upload=upload * MEGABIT, download=download * MEGABIT
        )

    def ordinary(self, clients: Integers) -> Cohort:
        """These clients on an ordinary day: what a step and a byte take is what they take in the mean."""
        classes, usual = self.device_of[clients], self.speed_of(clients)
        upload, download = (speeds[classes] for speeds in self._usual_links)
        return Cohort(
            clients=clients,
            devices=tuple(self.kind.devices[c].name for c in classes),
            speed=usual,
            upload=upload * MEGABIT,
            download=download * MEGABIT,
            overhead=np.zeros(len(clients)),
            fastest=self.fastest,
            usual=usual,
        )

    def _links(self, rng: np.random.Generator, classes: Classes) -> tuple[Floats, Floats]:
        """Upload and download in Mb/s."""
        if not self.kind.measured_links:
            return rng.uniform(*self._upload[:, classes]), rng.uniform(*self._download[:, classes])
        down, other = rng.normal(size=(2, len(classes)))
        up = measured.LINK_CORRELATION * down + np.sqrt(1 - measured.LINK_CORRELATION**2) * other
        return quantile(measured.UPLOAD_MBPS, _normal_cdf(up)), quantile(
            measured.DOWNLOAD_MBPS, _normal_cdf(down)
        )


def quantile(table: tuple[float, ...], where: Floats) -> Floats:
    """Values at places from 0 to 1 of a distribution given by evenly spaced quantiles."""
    return np.interp(where, np.linspace(0.0, 1.0, len(table)), table)


def usual_speed(quantiles: Floats) -> Floats:
    """The speed at which a byte takes the mean of its times; speeds lie evenly between quantiles (axis 0).

    >>> float(usual_speed(np.array([2.0, 2.0]))), round(float(usual_speed(np.array([1.0, 5.0]))), 3)
    (2.0, 2.485)
    """
    low, high = quantiles[:-1], quantiles[1:]
    with np.errstate(invalid="ignore"):
        times = np.where(high > low, np.log(high / low) / (high - low), 1 / low)
    means: Floats = 1 / times.mean(axis=0)
    return means


def _normal_cdf(values: Floats) -> Floats:
    return np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in values])


def read_fleet(path: Path) -> FleetKind:
    """A fleet from a CSV file: device, gflops and, if wanted, share, upload_mbps, download_mbps,
    joules_per_flop, joules_per_byte_up and joules_per_byte_down.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read the fleet {str(path)!r}: {why}") from None
    if len(rows) > _MOST_DEVICES:
        raise ConfigError(
            f"the fleet {str(path)!r} has {len(rows)} devices; at most {_MOST_DEVICES} are possible"
        )
    if not rows or not {"device", "gflops"} <= rows[0].keys():
        raise ConfigError(f"the fleet {str(path)!r} needs rows and at least the columns device and gflops")
    devices = tuple(_device(path, line, row) for line, row in enumerate(rows, 2))
    known = [device.joules_per_flop is not None for device in devices]
    if any(known) and not all(known):
        raise ConfigError(
            f"line {known.index(False) + 2} of the fleet {str(path)!r} has no joules_per_flop, but others "
            "have; give it for all devices, or for none"
        )
    return FleetKind(f"from {path.name}", devices)


def _device(path: Path, line: int, row: Mapping[str, str | None]) -> Device:
    def number(column: str, least: float = _SMALLEST, most: float = _LARGEST) -> float | None:
        text = row.get(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            said = f"line {line} of the fleet {str(path)!r}: {column} is {text!r}"
            raise ConfigError(f"{said}; it should be a number above 0, from {least:g} to {most:g}")
        return value

    gflops = number("gflops")
    if gflops is None:
        raise ConfigError(f"line {line} of the fleet {str(path)!r} has no gflops")
    upload, download = (
        None if (speed := number(column)) is None else (speed, speed)
        for column in ("upload_mbps", "download_mbps")
    )
    joules, up, down = (number(column, *_JOULES) for column in _ENERGY)
    if joules is None and (up or down):
        raise ConfigError(
            f"line {line} of the fleet {str(path)!r} says what a byte costs, but has no joules_per_flop"
        )
    name, share = row["device"] or f"device-{line - 1}", number("share") or 1.0
    a_byte = (up or WIFI[0], down or WIFI[1])
    return Device(name, gflops * 1e9, share, upload, download, joules_per_flop=joules, joules_per_byte=a_byte)


Classes = np.ndarray[tuple[int], np.dtype[np.int16]]


def _deal(shares: Floats, clients: int, rng: np.random.Generator) -> Classes:
    """A device class for every client, as close to the shares as whole numbers allow, shuffled."""
    edges = np.round(np.cumsum(shares) / shares.sum() * clients).astype(np.int64)
    classes = np.searchsorted(edges, np.arange(clients), side="right").astype(np.int16)
    rng.shuffle(classes)
    return classes


def _truncated_normal(rng: np.random.Generator, deviation: float, size: int) -> Floats:
    """Gaussian around 1, redrawn below a tenth, so that every step takes some time."""
    values = rng.normal(1.0, deviation, size)
    while (low := values < 0.1).any():
        values[low] = rng.normal(1.0, deviation, int(low.sum()))
    return values
