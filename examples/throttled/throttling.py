"""Slow devices on one machine: a share of a core by control groups, a core by affinity, a rate by traffic
control; else sleeps.

Nothing outside is touched: control groups are new ones, and traffic is shaped on the loopback of a network
namespace of our own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
INSIDE = "HEROES_THROTTLED_NETWORK"  # set once this program runs in a network namespace of its own
PERIOD = 100_000  # microseconds over which a share of a core is measured


@dataclass(frozen=True)
class Device:
    """What a node's machine can do."""

    name: str
    share: float  # of one core
    megabits: float  # a second, each way


DEVICES = (Device("fast", 1.0, 50.0), Device("middle", 0.5, 10.0), Device("slow", 0.25, 4.0))


@dataclass(frozen=True)
class Means:
    """What this machine lets us do."""

    groups: str | None  # "v2", "v1" or None
    affinity: bool
    network: bool

    def lines(self) -> list[str]:
        """What is used, for people."""
        kinds = {
            "v2": "cgroup v2 cpu.max",
            "v1": "cgroup v1 cpu.cfs_quota_us",
            None: "declared sleeps after training (no writable cpu cgroup)",
        }
        pinned = "taskset" if self.affinity else "not set (no taskset)"
        shaped = (
            "tc htb on the loopback of an own network namespace"
            if self.network
            else "not shaped (no root, tc or unshare)"
        )
        return [f"share of a core: {kinds[self.groups]}", f"affinity: {pinned}", f"network: {shaped}"]


def find_means() -> Means:
    """Try everything out; leaves nothing behind."""
    return Means(_groups_version(), shutil.which("taskset") is not None, bool(os.environ.get(INSIDE)))


def enter_own_network() -> None:
    """Start this program again in a network namespace of its own, if that can be shaped; else return."""
    if os.environ.get(INSIDE) or not (shutil.which("unshare") and shutil.which("tc") and shutil.which("ip")):
        return
    trial = (
        "ip link set lo up && tc qdisc add dev lo root handle 1: htb && "
        "tc class add dev lo parent 1: classid 1:1 htb rate 1mbit"
    )
    rule = "tc filter add dev lo parent 1: protocol ip u32 match ip dst 127.0.0.10/32 flowid 1:1"
    if _works(["unshare", "--net", "sh", "-c", f"{trial} && {rule}"]):
        os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def address(number: int, means: Means) -> str:
    """Where node `number` finds the server: with a shaped network every node has an address of its own for
    it.
    """
    return f"127.0.0.{10 + number}" if means.network else "127.0.0.1"


def shape(devices: Sequence[Device], means: Means) -> None:
    """Give what travels to and from each node's address its rate."""
    if not means.network:
        return
    _do("ip link set lo up mtu 1500")
    _do("tc qdisc add dev lo root handle 1: htb")
    for number, device in enumerate(devices):
        for way, direction in enumerate(("dst", "src")):
            handle = f"1:{10 + 2 * number + way}"
            _do(
                f"tc class add dev lo parent 1: classid {handle} htb rate {device.megabits:g}mbit burst 32k "
                "quantum 1514"
            )
            where = f"match ip {direction} {address(number, means)}/32"
            _do(f"tc filter add dev lo parent 1: protocol ip prio 1 u32 {where} flowid {handle}")


@contextmanager
def limits(devices: Sequence[Device], means: Means) -> Iterator[list[list[str]]]:
    """The words to put before each node's command. Control groups are removed at the end: their processes
    must have ended.
    """
    made: list[Path] = []
    try:
        words, cores = [], share_cores(devices)
        for number, device in enumerate(devices):
            if means.groups:
                made.append(_make_group(f"heroes-{os.getpid()}-{number}", device.share, means.groups))
            words.append([*_pinned(cores[number], means), *(_joining(made[-1]) if means.groups else [])])
        yield words
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def throttled_seconds(number: int, means: Means) -> float:
    """For how long node `number` was held back by its share so far."""
    if not means.groups:
        return 0.0
    text = (_home(means.groups) / f"heroes-{os.getpid()}-{number}" / "cpu.stat").read_text()
    values = dict(line.split() for line in text.splitlines())
    return (
        float(values["throttled_usec"]) / 1e6
        if "throttled_usec" in values
        else float(values["throttled_time"]) / 1e9
    )


def _home(version: str) -> Path:
    return GROUPS if version == "v2" else GROUPS / "cpu"


def _groups_version() -> str | None:
    for version in ("v2", "v1"):
        try:
            _make_group(f"heroes-{os.getpid()}-trial", 0.5, version).rmdir()
        except OSError:
            continue
        return version
    return None


def _make_group(name: str, share: float, version: str) -> Path:
    """A new control group that gets a share of a core; an OSError where that cannot be."""
    folder, quota = _home(version) / name, round(share * PERIOD)
    if version == "v2" and not (GROUPS / "cgroup.controllers").is_file():
        raise FileNotFoundError("no unified control groups")
    if version == "v1" and not (GROUPS / "cpu" / "cpu.cfs_quota_us").is_file():
        raise FileNotFoundError("no control groups of the first version")
    folder.mkdir()
    try:
        if version == "v2":
            (folder / "cpu.max").write_text(f"{quota} {PERIOD}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError:
        folder.rmdir()
        raise
    return folder


def _joining(folder: Path) -> list[str]:
    """A shell that joins the group and becomes the command."""
    return ["sh", "-c", f'echo $$ > "{folder}/cgroup.procs" && exec "$@"', "sh"]


def share_cores(devices: Sequence[Device]) -> list[int]:
    """A core for every device, so that those on one core want as little of it together as can be."""
    wanted = dict.fromkeys(sorted(os.sched_getaffinity(0)), 0.0)
    chosen = [0] * len(devices)
    for number, device in sorted(enumerate(devices), key=lambda pair: -pair[1].share):
        chosen[number] = min(wanted, key=lambda core: wanted[core])
        wanted[chosen[number]] += device.share
    return chosen


def _pinned(core: int, means: Means) -> list[str]:
    return ["taskset", "-c", str(core)] if means.affinity else []


def _works(command: list[str]) -> bool:
    return (
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=20
        ).returncode
        == 0
    )


def _do(command: str) -> None:
    subprocess.run(command.split(), check=True, timeout=20)
