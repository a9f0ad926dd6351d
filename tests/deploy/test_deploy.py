"""A federation with TLS and node authentication on loopback: who is let in, and what is lost when machines
die.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed_app import answered, make_app, missing, run_to_the_end, settings
from loopback import Federation, Keys, Service, members, records, wait_until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900), pytest.mark.xdist_group("deploy")]
NODES = 3
STRANGER = NODES  # has keys, but nobody registered them


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A SuperLink with three registered nodes that run; what a test kills it also starts again."""
    folder = tmp_path_factory.mktemp("federation")
    make = [
        sys.executable,
        "-m",
        "heroes.cli",
        "flower",
        "keys",
        str(folder / "keys"),
        "--nodes",
        str(NODES + 1),
    ]
    subprocess.run(make, check=True, timeout=60, stdout=subprocess.DEVNULL)
    with Federation(folder, Keys(folder / "keys")) as made:
        made.superlink()
        for number in range(NODES):
            made.register(number)
            made.supernode(number)
        yield made


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_app(tmp_path_factory.mktemp("apps") / "app", NODES)


def last(federation: Federation, name: str) -> Service:
    """The newest service of that name: superlink, node-0, ..."""
    return next(
        service for service in reversed(federation.services) if service.log.name.startswith(f"{name}-")
    )


def wait_for_rounds(out: Path, count: int, federation: Federation) -> None:
    wait_until(lambda: len(records(out)) >= count, 200, *federation.services)


def test_an_unregistered_node_is_refused(federation: Federation) -> None:
    stranger = federation.supernode(STRANGER)
    wait_until(lambda: stranger.process.poll() is not None, 90, stranger)
    assert stranger.process.returncode != 0
    assert "Exit Code: 305" in stranger.text()
    assert "SuperNode ID" not in stranger.text()


def test_a_node_that_trusts_another_authority_does_not_get_through(
    federation: Federation, tmp_path: Path
) -> None:
    make = [sys.executable, "-m", "heroes.cli", "flower", "keys", str(tmp_path / "keys"), "--nodes", "1"]
    subprocess.run(make, check=True, timeout=60, stdout=subprocess.DEVNULL)
    (tmp_path / "other").mkdir()
    other = Federation(tmp_path / "other", Keys(tmp_path / "keys"), port=federation.port)
    with other:
        node = other.supernode(0)
        wait_until(
            lambda: node.process.poll() is not None or "Connection attempt failed" in node.text(), 90, node
        )
        assert "SuperNode ID" not in node.text()


def test_a_run_of_registered_nodes_ends_well(federation: Federation, app: Path, tmp_path: Path) -> None:
    run = run_to_the_end(federation, app, settings(tmp_path, rounds=3))
    assert run.well(), run.text()
    assert [record["round"] for record in records(tmp_path)] == [1, 2, 3]
    assert all(answered(record) == {0, 1, 2} for record in records(tmp_path))
    assert {record["clock"] for record in records(tmp_path)} == {"wall"}


def test_an_app_brings_its_own_model_and_nodes_their_own_data(federation: Federation, tmp_path: Path) -> None:
    run = run_to_the_end(
        federation, make_app(tmp_path / "clouds", NODES, "--own"), settings(tmp_path / "run", rounds=3)
    )
    assert run.well(), run.text()
    rounds = records(tmp_path / "run")
    assert all(client["samples"] == 400 for record in rounds for client in record["clients"])
    assert [record["round"] for record in rounds] == [1, 2, 3]
    assert rounds[-1]["scores"]["accuracy"] > 0.3  # of four classes, after a dozen steps


def test_a_registered_node_cannot_answer_as_another_client(federation: Federation, tmp_path: Path) -> None:
    app = make_app(tmp_path / "liar", NODES)
    shutil.copy(Path(__file__).with_name("liar.py"), app)
    project = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(project.replace("heroes.flower_app:", "liar:"))
    run = run_to_the_end(federation, app, settings(tmp_path / "run", rounds=2))
    assert run.well(), run.text()
    for record in records(tmp_path / "run"):
        assert record["lost"] == {"forged": 1}
        assert (answered(record), missing(record)) == ({0, 2}, {1})


def test_a_node_killed_in_mid_round_costs_its_update_only_and_takes_part_again(
    federation: Federation, app: Path, tmp_path: Path
) -> None:
    victim = last(federation, "node-1")
    run = federation.run(app, settings(tmp_path, rounds=10))
    wait_for_rounds(tmp_path, 1, federation)
    seen = victim.text().count("Receiving")
    wait_until(lambda: victim.text().count("Receiving") > seen, 60, victim, run)
    victim.kill()
    assert members(victim.mark) == []
    wait_until(lambda: any(missing(record) for record in records(tmp_path)), 250, *federation.services)
    federation.supernode(1)
    wait_until(lambda: run.process.poll() is not None, 500, run, *federation.services)
    assert run.well(), run.text()
    rounds = records(tmp_path)
    assert [record["round"] for record in rounds] == list(range(1, 11))
    assert [missing(record) for record in rounds if missing(record)] == [{1}]
    assert all({0, 2} <= answered(record) for record in rounds)
    assert answered(rounds[-1]) == {0, 1, 2}


def test_a_server_killed_in_mid_run_goes_on_after_the_last_round_it_wrote(
    federation: Federation, app: Path, tmp_path: Path
) -> None:
    wanted = settings(tmp_path, rounds=6)
    cut_off = federation.run(app, wanted)
    wait_for_rounds(tmp_path, 2, federation)
    last(federation, "superlink").kill()
    wait_until(lambda: cut_off.process.poll() is not None, 60, cut_off)
    assert cut_off.process.returncode != 0
    before = records(tmp_path)
    assert 2 <= len(before) < 6
    federation.superlink()  # its database knows the nodes, which come back by themselves
    run = run_to_the_end(federation, app, wanted)
    assert run.well(), run.text()
    assert [record["round"] for record in records(tmp_path)] == [1, 2, 3, 4, 5, 6]
    assert records(tmp_path)[: len(before)] == before
    assert answered(records(tmp_path)[-1]) == {0, 1, 2}
