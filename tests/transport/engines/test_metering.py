"""What a node spends on the network: measured in one process, told by another, read by the server."""

import os
import time
from threading import Barrier, Thread

import pytest

from heroes.messages import Spent
from heroes.transport.engines.flower.forking import ended, forked
from heroes.transport.engines.flower.metering import METERS, Ledger, Meter, on_network

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_requests_at_the_same_time_count_once() -> None:
    meter, together = Meter(), Barrier(3)

    def request() -> None:
        together.wait()
        time.sleep(0.2)

    threads = [Thread(target=meter.counting(request)) for _ in range(3)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.2 <= meter.seconds <= time.monotonic() - begun
    before = meter.seconds
    time.sleep(0.05)  # a pause between requests is not counted
    with pytest.raises(OSError, match="cut"):
        meter.counting(_fail)()
    assert before <= meter.seconds < before + 0.05


def _fail() -> None:
    raise OSError("the link was cut")


def test_a_task_tells_what_the_supernode_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_network() == {}  # a node of flower-supernode measures nothing
    meter = Meter()
    monkeypatch.setattr("heroes.transport.engines.flower.metering.METERS", [*METERS, meter])
    process = forked(meter.counting(lambda: time.sleep(0.1)))
    while ended(process) is None:
        time.sleep(0.01)
    assert on_network()["network"] == pytest.approx(meter.seconds, abs=1e-4)
    assert meter.seconds >= 0.1
    assert os.getpid() != process


def test_an_answer_took_what_the_network_had_since_the_last_one() -> None:
    ledger = Ledger()
    ledger.open(7, {"network": 1.0})
    assert ledger.spent(7, {"trained": 2.0, "started": 1.0, "network": 1.5}, 8.0) == Spent(2.0, 0.5, 1.0, 4.5)
    assert ledger.spent(7, {"trained": 2.0, "network": 3.5}, 8.0) == Spent(2.0, 2.0, 0.0, 4.0)
    assert ledger.spent(7, {"trained": 2.0, "network": 0.5}, 8.0) == Spent(2.0, 0.5, 0.0, 5.5)  # restarted
    assert ledger.spent(8, {"trained": 2.0}, 8.0) == Spent(2.0, 6.0)
    assert ledger.spent(8, {"trained": 9.0}, 8.0) is None


@pytest.mark.parametrize(
    ("told", "found"), [(3 * 10**8, 3 * 10**8), (-1, None), (2**60, None), ("much", None)]
)
def test_a_node_tells_its_name_and_its_memory(told: object, found: int | None) -> None:
    ledger = Ledger()
    ledger.open(7, {"name": "kitchen\x1b" + 80 * "n"})
    spent = ledger.spent(7, {"trained": 2.0, "memory": told}, 8.0)
    assert spent is not None
    assert spent.memory == found
    assert spent.name.startswith("kitchen\\x1b")
    assert len(spent.name) == 63
