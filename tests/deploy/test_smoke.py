"""The shortest deployment there is: no TLS, two nodes that import once, two rounds."""

import sys
from pathlib import Path

import pytest
from deployed_app import answered, make_app, run_to_the_end, settings
from loopback import Federation, members, records

from heroes.cli import flower_units as units


@pytest.mark.timeout(600)
def test_two_nodes_do_two_rounds_and_nothing_is_left_running(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "heroes.cli", "flower", "node")
    named = units.node_config("kitchen", 0).partition(" ")[2]
    with Federation(tmp_path / "federation", node_command=command, node_config=lambda _: named) as federation:
        federation.superlink()
        for number in range(2):
            federation.supernode(number)
        run = run_to_the_end(
            federation, make_app(tmp_path / "app", nodes=2), settings(tmp_path / "run", rounds=2)
        )
        assert run.well(), run.text()
    rounds = records(tmp_path / "run")
    assert [record["round"] for record in rounds] == [1, 2]
    assert all(answered(record) == {0, 1} for record in rounds)
    clients = [client for record in rounds for client in record["clients"]]
    for part in ("start", "compute", "transfer"):
        assert all(client[f"{part}_seconds"] > 0 for client in clients), part  # as each node measured itself
    pauses = [client["pause_seconds"] for client in clients]  # on a busy machine the network may take it all
    assert min(pauses) >= 0
    assert max(pauses) > 0
    for client in clients:
        assert 100e6 < client["memory"] < 2e9
        assert client["name"] == "kitchen"
    assert [members(service.mark) for service in federation.services] == [[]] * 4
