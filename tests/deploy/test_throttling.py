"""The throttling of the example: groups and rates really hold the processes and the traffic they are meant
for.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import throttling
from throttling import DEVICES, Means

EXAMPLE = Path(throttling.__file__).parent
TRAFFIC = """
import socket, subprocess, throttling
throttling.enter_own_network()
means = throttling.find_means()
if not means.network:
    raise SystemExit(77)
throttling.shape(throttling.DEVICES, means)
server = socket.create_server(("0.0.0.0", 0))
client = socket.create_connection((throttling.address(1, means), server.getsockname()[1]))
client.sendall(bytes(3000))
peer = server.accept()[0]
peer.recv(3000)
show = ["tc", "-s", "class", "show", "dev", "lo"]
print(subprocess.run(show, capture_output=True, text=True, check=True).stdout)
"""


def test_a_node_runs_in_a_group_of_its_own_with_its_share_and_the_group_goes() -> None:
    means = throttling.find_means()
    if means.groups is None:
        pytest.skip("no writable cpu cgroup here")
    with throttling.limits(DEVICES, means) as words:
        for number, prefix in enumerate(words):
            command = [*prefix, "cat", "/proc/self/cgroup"]
            shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
            assert f"heroes-{os.getpid()}-{number}" in shown
        assert throttling.throttled_seconds(2, means) >= 0
    home = throttling.GROUPS / ("" if means.groups == "v2" else "cpu")
    assert not list(home.glob(f"heroes-{os.getpid()}-*"))


def test_devices_share_cores_so_that_none_is_wanted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 7})
    cores = throttling.share_cores(DEVICES)
    assert cores == [4, 7, 7]  # a whole core for the fastest, three quarters of the other for the rest


def test_without_any_means_nothing_is_put_before_the_command_and_that_is_said() -> None:
    means = Means(groups=None, affinity=False, network=False)
    with throttling.limits(DEVICES, means) as words:
        assert words == [[], [], []]
    assert "declared sleeps" in means.lines()[0]
    assert throttling.address(2, means) == "127.0.0.1"


def test_traffic_to_a_nodes_address_goes_through_its_class(tmp_path: Path) -> None:
    script = tmp_path / "traffic.py"
    script.write_text(TRAFFIC)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(EXAMPLE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no network namespace of our own here")
    assert done.returncode == 0, done.stderr
    sent = {
        block.split()[0]: int(block.split(" Sent ")[1].split()[0])
        for block in done.stdout.split("class htb ")[1:]
    }
    assert sent["1:12"] >= 3000  # to node 1's address
    assert sent["1:10"] == sent["1:14"] == 0  # to the others'
