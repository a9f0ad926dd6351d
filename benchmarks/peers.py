"""The same FedAvg job on heroes, Flower, pfl and, as the limit, a bare loop without federated learning.

Every side lives in processes of its own and does a round when it is its turn, while the others wait, stopped.
Peers run as their users write them, and once more with heroes' memory layout, so that one sees what is engine
and what is layout; heroes runs in float32 as they do, and once more with precision = auto.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Listener
from pathlib import Path

from benchmarks.common import Side, ratio, save, say, show, take_turns
from benchmarks.peer_job import JOBS, Answer, Job

TURNS = (5, 1)  # in earnest, and to see that it runs
ROUNDS = {"overhead": 5, "compute": 1}  # in a turn
# how much further one side's model may move than another's: each draws its own clients, which alone makes 1.8
TOLERANCE = 2.0
TOOLS = ("heroes", "flower", "pfl", "bare")
PFL = ("1 thread", "2 threads", "2 processes")
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray on loopback only, here too
    "GLOO_SOCKET_IFNAME": "lo",
}
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "--local-addr=127.0.0.1"]


@dataclass(frozen=True)
class Entry:
    """A side and how it runs."""

    tool: str
    variant: str = ""
    layout: str = "default"

    def __str__(self) -> str:
        return ", ".join(
            part for part in (self.tool, self.variant, self.layout) if part and part != "default"
        )


HEROES, AUTO = Entry("heroes"), Entry("heroes", "precision auto")
BARE, BARE_BFLOAT16 = (Entry("bare", variant, "channels_last") for variant in ("", "bfloat16"))
ENTRIES = (
    HEROES,
    AUTO,
    *(
        Entry(tool, variant, layout)
        for layout in ("default", "channels_last")
        for tool, variant in (("Flower", ""), *(("pfl", variant) for variant in PFL), ("bare", ""))
    ),
    BARE_BFLOAT16,
)


@dataclass(frozen=True)
class Goal:
    """How one side should do against the best of others: its speed is at least so many times theirs."""

    side: Entry
    others: tuple[Entry, ...]
    least: float
    words: str

    def line(self, found: dict[Entry, Side]) -> list[str]:
        reached = ratio(min((found[e] for e in self.others), key=lambda side: side.median), found[self.side])
        return [
            self.words,
            f"{self.least:.2f}",
            f"{reached:.2f}",
            "met" if reached >= self.least else "missed",
        ]


OF_PFL = tuple(entry for entry in ENTRIES if entry.tool == "pfl")
BEATS_PFL = Goal(AUTO, OF_PFL, 1.3, "heroes, precision auto, against pfl's best")
GOALS = {
    "overhead": (
        BEATS_PFL,
        Goal(HEROES, OF_PFL, 1.0, "heroes in float32 against pfl's best"),
        Goal(HEROES, (BARE,), 1 / 1.05, "heroes in float32 against the bare loop in its layout"),
    ),
    "compute": (
        BEATS_PFL,
        Goal(AUTO, (Entry("bare"),), 1.6, "heroes, precision auto, against the plain bare loop"),
        Goal(AUTO, (BARE_BFLOAT16,), 0.95, "heroes, precision auto, against the bare loop in its precision"),
        Goal(HEROES, (BARE,), 0.95, "heroes in float32 against the bare loop in its layout"),
    ),
}


class Process:
    """A side in processes of its own. They are stopped between its turns: Ray's and Flower's never rest."""

    def __init__(self, entry: Entry, job: str, folder: Path) -> None:
        folder.mkdir()
        self.entry = entry
        self.log = folder / "log"
        launch = TORCHRUN if entry.variant == "2 processes" else []
        arguments = [entry.tool.lower(), job, entry.layout, entry.variant, str(folder / "line")]
        with Listener(str(folder / "line")) as listener, self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *launch, "-m", "benchmarks.peer_job", *arguments],
                cwd=Path(__file__).parents[1],
                env=os.environ | OFFLINE | {"FLWR_HOME": str(folder)},
                stdout=log,
                stderr=log,
            )
            self.link = listener.accept()
        self._signal(signal.SIGSTOP)

    def round(self) -> Answer:
        self._signal(signal.SIGCONT)
        try:
            self.link.send(True)
            return Answer(*self.link.recv())
        except (EOFError, OSError):
            raise RuntimeError(f"{self.entry} has ended:\n{self.log.read_text()[-3000:]}") from None
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """Ask it to end, and end whatever it leaves behind."""
        self._signal(signal.SIGCONT)
        family = descendants(self.process.pid)
        self.link.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        send(signal.SIGKILL, [*family, self.process.pid])
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            send(number, [self.process.pid, *descendants(self.process.pid)])


def send(number: signal.Signals, processes: list[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def descendants(ancestor: int) -> list[int]:
    """The processes that this one started, and those that they started."""
    found = [ancestor]
    for number in found:  # it grows meanwhile
        for children in Path(f"/proc/{number}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found[1:]


def main(quick: bool, job: str | None = None, tools: Collection[str] = TOOLS) -> None:
    missing = [name for name in ("flwr", "ray", "pfl") if find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"the peers benchmark needs {', '.join(missing)}; make bench BENCH=peers installs them"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and so the sides are ended too
    entries = [entry for entry in ENTRIES if entry.tool.lower() in tools]
    part = "".join(
        f"-{word}" for word in ([job] if job else []) + ([] if set(tools) == {*TOOLS} else [*tools])
    )
    names = list(JOBS) if job is None else [job]
    save(f"peers{part}", {name: measure(name, TURNS[quick], entries) for name in names})


def measure(name: str, turns: int, entries: Sequence[Entry] = ENTRIES) -> dict[str, object]:
    """One job on these sides, in turn."""
    job, answers = JOBS[name], dict[Entry, Answer]()

    def turn(entry: Entry, process: Process) -> float:
        several = [process.round() for _ in range(ROUNDS[name])]
        answers.setdefault(entry, several[0])
        return sum(answer.seconds for answer in several) / len(several)

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-"))
        processes = {}
        for number, entry in enumerate(entries):
            say(f"starting {entry}")
            processes[entry] = stack.enter_context(closing(Process(entry, name, Path(folder) / str(number))))
        sides = take_turns({str(e): lambda e=e, p=p: turn(e, p) for e, p in processes.items()}, turns)
    check(job, answers)
    found = {entry: sides[str(entry)] for entry in entries}
    report(name, job, found)
    milliseconds = 1000 / job.cohort
    return {
        str(entry): {
            "first_ms": side.first * milliseconds,
            "ms": [seconds * milliseconds for seconds in side.turns],
            "against_heroes": ratio(side, found[HEROES]),
            "against_auto": ratio(side, found[AUTO]),
            "moved": answers[entry].moved,
        }
        for entry, side in found.items()
    }


def check(job: Job, answers: dict[Entry, Answer]) -> None:
    """All sides did the same job: the same number of steps in the first round, and the model moved about as
    far.
    """
    steps = {str(entry): answer.steps for entry, answer in answers.items()}
    assert set(steps.values()) == {job.cohort * job.steps}, (
        f"not all did {job.cohort * job.steps} steps: {steps}"
    )
    moved = {str(entry): answer.moved for entry, answer in answers.items() if entry.tool != "bare"}
    assert max(moved.values()) < TOLERANCE * min(moved.values()), f"the models moved differently far: {moved}"


def report(name: str, job: Job, found: dict[Entry, Side]) -> None:
    """Medians and spread of all sides, and what became of the goals."""
    milliseconds = 1000 / job.cohort
    rows = [
        [
            str(entry),
            f"{side.first * milliseconds:.4g}",
            f"{side.median * milliseconds:.4g}",
            f"{min(side.turns) * milliseconds:.4g} to {max(side.turns) * milliseconds:.4g}",
            f"{ratio(side, found[HEROES]):.2f}",
            f"{ratio(side, found[AUTO]):.2f}",
        ]
        for entry, side in found.items()
    ]
    show(
        f"{name}: {job.cohort} of {job.clients} clients, {job.steps} steps of batch {job.batch}",
        ["ms per client", "first turn", "median", "spread", "against heroes", "against heroes, auto"],
        rows,
        f"{len(found[HEROES].turns)} turns of {ROUNDS[name]} rounds. Two cores for every side.",
    )
    goals = [goal.line(found) for goal in GOALS[name] if {goal.side, *goal.others} <= found.keys()]
    show(f"{name}: goals", ["", "at least", "reached", ""], goals)
