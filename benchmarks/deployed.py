"""A deployed Flower federation on loopback: what a round takes, and what goes through the sockets between
nodes and SuperLink.

Two nodes and the CNN of CIFAR-10 on drawn images, one local step. All nodes reach the SuperLink through a tap
that counts bytes: tasks, answers, HTTP around them and the polling of nodes. The first round is left out; it
has the app and the first questions.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "throttled"))
from loopback import HOST, Federation, program, records, wait_until

TAP = "127.0.0.2"  # the same port as the SuperLink's, at another address of this machine
NODES, ROUNDS = 2, 5
WIDEST, NARROWEST = 1e9, 1e-9  # seconds that a step may take, for everybody to get that width
PARTS = """
import torch
import heroes
from heroes.flower_app import Parts
from heroes.models.cnn import build

def data(client):
    draw = torch.Generator().manual_seed(0 if client is None else 1 + client)
    inputs = torch.randn(64, 3, 32, 32, generator=draw)
    return heroes.Examples(inputs, torch.randint(10, (64,), generator=draw))

parts = Parts(model=build, data=data)
server_app = parts.server_app()
client_app = parts.client_app()
"""


@dataclass(frozen=True)
class Deployed:
    """A round of a deployment, on average: its seconds, the bytes of its tensors, and all bytes that went
    through the tap.
    """

    width: int
    bits: int
    seconds: float
    payload: float
    carried: float

    @property
    def besides(self) -> float:
        """Per cent beside the payload."""
        return 100 * (self.carried / self.payload - 1)


def measure(width: int, bits: int) -> Deployed:
    """Run a federation whose clients all have this width and these bits, both ways."""
    with tempfile.TemporaryDirectory(prefix="deployed-") as name:
        folder = Path(name)
        limit = WIDEST if width == 4 else NARROWEST
        app = _app(
            folder / "app",
            {"strategy.step_limit": limit, "exchange.up_bits": bits, "exchange.down_bits": bits},
        )
        with (
            Federation(folder / "federation", server_for=lambda number: TAP) as federation,
            tapped(federation.port) as tap,
        ):
            federation.superlink()
            for number in range(NODES):
                federation.supernode(number)
            marks: list[tuple[dict[str, Any], int]] = []
            run = federation.run(app, {"out": str(folder / "run"), "rounds": ROUNDS})

            def over() -> bool:
                ended = run.process.poll() is not None
                marks.extend((record, tap.carried) for record in records(folder / "run")[len(marks) :])
                return ended

            wait_until(over, 600, run, *federation.services)
            if not run.well() or len(marks) != ROUNDS:
                raise RuntimeError(f"the deployment failed: {run.text()[-2000:]}")
    assert all(client["width"] == width for record, _ in marks for client in record["clients"])
    later = [record for record, _ in marks[1:]]
    payload = sum(record["bytes_up"] + record["bytes_down"] for record in later) / len(later)
    carried = (marks[-1][1] - marks[0][1]) / len(later)
    return Deployed(width, bits, median(record["duration"] for record in later), payload, carried)


@dataclass
class Tap:
    """Passes connections on to the same port of another address, and counts what goes through, both ways."""

    door: socket.socket
    carried: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self) -> None:
        port = self.door.getsockname()[1]
        with suppress(OSError):  # until the door is closed
            while True:
                near, _ = self.door.accept()
                try:
                    far = socket.create_connection((HOST, port))
                except OSError:  # the SuperLink is not there yet, or no longer
                    near.close()
                    continue
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                with self.lock:
                    self.carried += len(data)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def tapped(port: int) -> Iterator[Tap]:
    """A tap at its address that passes connections on to this port."""
    with socket.create_server((TAP, port)) as door:
        tap = Tap(door)
        threading.Thread(target=tap.serve, daemon=True).start()
        yield tap


def _app(folder: Path, settings: dict[str, object]) -> Path:
    common = {
        "federation.clients": NODES,
        "federation.cohort": NODES,
        "strategy.adaptive_tau": "false",
        "training.batch_size": 4,
    }
    once = {"strategy.tau_first": 1, "strategy.tau_min": 1, "strategy.tau_max": 1}
    changes = [
        word for key, value in (common | once | settings).items() for word in ("--set", f"{key}={value}")
    ]
    command = [program("heroes"), "flower", "init", str(folder), "--own", "--experiment", "cifar10", *changes]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "own_parts.py").write_text(PARTS)
    return folder
