"""Devices and links. A fleet is a few arrays, whatever the number of clients; a round's draws come from seed and round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heroes import seeds
from heroes.messages import Cohort, Floats, Integers

MEGABIT = 1e6 / 8  # bytes


@dataclass(frozen=True)
class Device:
    """A class of device: its sustained training speed, and how many clients have it relative to the others."""

    name: str
    flops: float  # per second
    share: float = 1.0


@dataclass(frozen=True)
class FleetKind:
    """A named kind of fleet. Speeds of links in Mb/s are drawn evenly from a range, anew for every client and round."""

    summary: str
    devices: tuple[Device, ...]
    upload: tuple[float, float] = (1.0, 5.0)
    download: tuple[float, float] = (10.0, 20.0)
    jitter: float = 0.1  # deviation of the step time around its mean


def _four(names: tuple[str, str, str, str], unit: float) -> tuple[Device, ...]:
    return tuple(Device(name, factor * unit) for name, factor in zip(names, (1.0, 2.0, 3.0, 4.0), strict=True))


FLEETS: dict[str, FleetKind] = {
    "paper": FleetKind(
        "the paper's devices, 10 to 40 GFLOP/s in training, a quarter of the clients each",
        _four(("TX2", "Xavier NX", "laptop", "AGX Xavier"), 10e9),
    ),
    "boards": FleetKind(
        "the same fourfold spread at 1/100 of the speed: small boards, for models as small as the digits one",
        _four(("board-1", "board-2", "board-3", "board-4"), 0.1e9),
    ),
    "equal": FleetKind(
        "one kind of device on one kind of link: no heterogeneity", (Device("laptop", 30e9),), (3.0, 3.0), (15.0, 15.0), 0.0
    ),
}


class Fleet:
    """The clients' devices and links."""

    def __init__(self, kind: FleetKind, clients: int, seed: int) -> None:
        self.kind = kind
        self.seed = seed
        self.device_of = _deal(
            np.array([device.share for device in kind.devices]), clients, seeds.stream(seed, "fleet", "devices")
        )
        self.flops = np.array([device.flops for device in kind.devices])

    def __len__(self) -> int:
        return len(self.device_of)

    @property
    def fastest(self) -> float:
        """FLOP/s of the fastest device class."""
        return float(self.flops.max())

    def status(self, clients: Integers, round_number: int) -> Cohort:
        """What the server reads of these clients at the start of a round."""
        rng = seeds.stream(self.seed, "fleet", "round", round_number)
        classes = self.device_of[clients]
        return Cohort(
            clients=clients,
            devices=tuple(self.kind.devices[c].name for c in classes),
            speed=self.flops[classes] / _truncated_normal(rng, self.kind.jitter, len(clients)),
            upload=rng.uniform(*self.kind.upload, len(clients)) * MEGABIT,
            download=rng.uniform(*self.kind.download, len(clients)) * MEGABIT,
        )


def _deal(shares: Floats, clients: int, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """A device class for every client, as close to the shares as whole numbers allow, shuffled."""
    edges = np.round(np.cumsum(shares) / shares.sum() * clients).astype(np.int64)
    classes = np.searchsorted(edges, np.arange(clients), side="right").astype(np.int16)
    rng.shuffle(classes)
    return classes


def _truncated_normal(rng: np.random.Generator, deviation: float, size: int) -> Floats:
    """Gaussian around 1, drawn again where it falls below a tenth, so that no step takes no time."""
    values = rng.normal(1.0, deviation, size)
    while (low := values < 0.1).any():
        values[low] = rng.normal(1.0, deviation, int(low.sum()))
    return values
