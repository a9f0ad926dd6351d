"""`heroes flower keys`: files that others cannot read, certificates that a TLS handshake accepts, keys that
Flower accepts.
"""

import shutil
import socket
import ssl
import stat
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from typer.testing import CliRunner

import heroes.cli.commands
from heroes.cli.app import app
from heroes.errors import HeroesError


@dataclass(frozen=True)
class Done:
    returncode: int
    said: str


def keys(folder: Path, *words: str) -> Done:
    done = CliRunner().invoke(app, ["flower", "keys", str(folder), *words])
    if isinstance(done.exception, HeroesError):
        return Done(done.exception.exit_code, str(done.exception))
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return Done(done.exit_code, done.output)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "keys"
    done = keys(
        folder, "--nodes", "2", "--host", "fl.example.org", "--host", "192.0.2.7", "--host", "2001:db8::7"
    )
    assert done.returncode == 0, done.said
    return folder


def handshake(folder: Path, name: str, ca: Path | None = None) -> dict[str, object]:
    """Serve once on loopback with the server's certificate; the certificate as a client that trusts only `ca`
    sees it.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(ca or folder / "ca.crt"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve_once, args=(listener, server))
    thread.start()
    try:
        with (
            socket.create_connection(listener.getsockname(), 10) as plain,
            client.wrap_socket(plain, server_hostname=name) as safe,
        ):
            assert safe.recv(5) == b"hello"
            return dict(safe.getpeercert() or {})
    finally:
        thread.join(10)
        listener.close()


def serve_once(listener: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    with connection:
        try:
            with context.wrap_socket(connection, server_side=True) as safe:
                safe.sendall(b"hello")
        except (ssl.SSLError, OSError):  # the client did not like us
            pass


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "fl.example.org", "192.0.2.7", "2001:db8::7"])
def test_a_client_that_trusts_the_authority_accepts_the_server_by_all_its_names(
    made: Path, name: str
) -> None:
    assert "subjectAltName" in handshake(made, name)


def test_other_names_and_other_authorities_are_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(made, "example.com")
    assert keys(tmp_path / "others", "--nodes", "1").returncode == 0
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, "localhost", tmp_path / "others" / "ca.crt")


def test_private_files_are_their_owners_only(made: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()}
    private = {"ca.key", "server.key", "node-0.key", "node-1.key"}
    assert modes == dict.fromkeys(private, 0o600) | dict.fromkeys(
        {"ca.crt", "server.crt", "node-0.pub", "node-1.pub"}, 0o644
    )
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_node_keys_are_pairs_on_the_curve_that_flower_wants_and_all_different(made: Path) -> None:
    pairs = []
    for number in range(2):
        private = load_ssh_private_key((made / f"node-{number}.key").read_bytes(), None)
        public = load_ssh_public_key((made / f"node-{number}.pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert isinstance(private.curve, ec.SECP384R1)
        assert private.public_key() == public
        pairs.append(public)
    assert pairs[0] != pairs[1]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path) -> None:
    assert keys(tmp_path, "--nodes", "1").returncode == 0
    before = contents(tmp_path)
    refused = keys(tmp_path, "--nodes", "3")
    assert refused.returncode == 2
    assert "already holds ca.key and 5 more" in refused.said
    assert contents(tmp_path) == before
    assert keys(tmp_path, "--nodes", "1", "--overwrite").returncode == 0
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)


def test_further_nodes_and_a_renewed_certificate_leave_the_rest_alone(tmp_path: Path) -> None:
    assert keys(tmp_path, "--nodes", "1").returncode == 0
    before = contents(tmp_path)
    assert keys(tmp_path, "--nodes", "2", "--first", "1").returncode == 0
    added = contents(tmp_path)
    assert added.keys() - before.keys() == {"node-1.key", "node-1.pub", "node-2.key", "node-2.pub"}
    assert {name: added[name] for name in before} == before
    assert keys(tmp_path, "--renew", "--host", "new.example.org").returncode == 0
    after = contents(tmp_path)
    assert {name for name in after if after[name] != added[name]} == {"server.key", "server.crt"}
    handshake(tmp_path, "new.example.org")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--nodes is missing"),
        (["--nodes", "1", "--host", "a..b"], "--host 'a..b' is neither a host name nor an address"),
        (["--nodes", "1", "--host", "10.0.0.256"], "neither a host name nor an address"),
        (["--nodes", "1", "--renew"], "--renew makes no keys of nodes"),
        (["--renew"], "holds no ca.key"),
        (["--nodes", "-1"], "--nodes"),
        (["--nodes", "1", "--systemd"], "--systemd needs --host"),
        (["--nodes", "1", "--docker"], "--docker needs --host"),
        (["--name", "Kitchen"], "--name 'Kitchen' cannot be a node's"),
        (["--name", "gate"], "none of ca, server, superlink, gate"),
        (["--name", "a", "--name", "a"], "--name 'a' is given twice"),
        (["--name", "a", "--nodes", "2"], "--nodes is 2, but there are 1 names"),
        (["--renew", "--docker"], "--renew makes no keys of nodes and no units"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(tmp_path: Path, words: list[str], said: str) -> None:
    done = keys(tmp_path / "keys", *words)
    assert done.returncode == 2
    assert said in done.said
    assert not (tmp_path / "keys").exists()


def test_a_broken_authority_is_said_plainly(tmp_path: Path) -> None:
    assert keys(tmp_path, "--nodes", "1").returncode == 0
    (tmp_path / "ca.key").write_text("nonsense")
    done = keys(tmp_path, "--renew")
    assert done.returncode == 2
    assert "cannot be read" in done.said


def test_the_commands_to_type_are_printed(tmp_path: Path) -> None:
    done = keys(tmp_path, "--nodes", "2", "--host", "fl.example.org")
    for part in (
        "flower-superlink",
        "heroes flower node --superlink fl.example.org:8000",
        "flwr supernode register",
        "ca.key: keep it",
    ):
        assert part in done.said


@pytest.fixture(scope="module")
def starters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("starters") / "keys"
    words = ["--name", "kitchen", "--name", "garage", "--host", "fl.example.org", "--systemd", "--docker"]
    done = keys(folder, *words)
    assert done.returncode == 0, done.said
    for part in (
        "systemctl enable --now heroes-superlink",
        "docker compose -f compose.yaml --profile superlink up -d --build",
        'address = "127.0.0.1:8001"',
        "systemctl enable --now heroes-kitchen",
        "NODE = kitchen or garage",
    ):
        assert part in done.said
    assert "--host 0.0.0.0" not in done.said  # what the files close, the commands do not open
    return folder


def test_named_nodes_have_keys_and_units_by_name(starters: Path) -> None:
    assert {path.stem for path in starters.glob("*.pub")} == {"kitchen", "garage"}
    found = {path.name for path in (starters / "systemd").iterdir()}
    assert found == {
        "heroes-superlink.service",
        "heroes-kitchen.service",
        "heroes-garage.service",
        "gate.conf",
    }
    unit = (starters / "systemd" / "heroes-garage.service").read_text()
    assert "/etc/heroes/garage.key" in unit
    assert """--node-config 'partition-id=1 name="garage"'""" in unit


def test_systemd_finds_nothing_wrong_with_the_units(starters: Path, tmp_path: Path) -> None:
    """Programs need not be installed here: their place is a folder of this test."""
    if shutil.which("systemd-analyze") is None:
        units = [path.read_text() for path in (starters / "systemd").glob("*.service")]
        assert all(text.count("\n[") == 3 and "\nExecStart=/" in text for text in units)
        return
    for name in ("flower-superlink", "heroes"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    for path in (starters / "systemd").glob("*.service"):
        copy = tmp_path / path.name
        copy.write_text(path.read_text().replace("/opt/heroes/bin", str(tmp_path)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.glob("*.service"))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, str(tmp_path) in done.stderr) == (0, False), done.stderr


def test_the_compose_file_has_a_service_for_every_machine_and_only_the_gate_is_open(starters: Path) -> None:
    compose = yaml.safe_load((starters / "docker" / "compose.yaml").read_text())
    services = compose["services"]
    assert {name: service["profiles"] for name, service in services.items()} == {
        "superlink": ["superlink"],
        "gate": ["superlink"],
        "kitchen": ["kitchen"],
        "garage": ["garage"],
    }
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"superlink": ["127.0.0.1:8001:8001"], "gate": ["8000:8000"]}
    for service in services.values():
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            assert source in compose["volumes"] or (starters / "docker" / source).resolve().is_file()
            assert target.startswith("/")
    mounted = [volume for volume in services["garage"]["volumes"] if ".key" in volume]
    assert mounted == ["../garage.key:/etc/heroes/garage.key:ro"]


def test_the_commands_of_units_and_services_are_what_flower_takes(starters: Path) -> None:
    """Every option is one that the installed Flower knows."""
    services = yaml.safe_load((starters / "docker" / "compose.yaml").read_text())["services"]
    for name, parser in (("superlink", superlink_options()), ("kitchen", supernode_options())):
        command = services[name]["command"]
        assert {word for word in command if word.startswith("--")} <= parser


def superlink_options() -> set[str]:
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink

    return set(_parse_args_run_superlink()._option_string_actions)


def supernode_options() -> set[str]:
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    return set(_parse_args_run_supernode()._option_string_actions)


def test_the_dockerfile_is_one_and_says_this_version(starters: Path) -> None:
    lines = (starters / "docker" / "Dockerfile").read_text().splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert [step for step, _ in steps] == [
        "ARG",
        "FROM",
        "ARG",
        "ARG",
        "RUN",
        "RUN",
        "ENV",
        "WORKDIR",
        "USER",
    ]
    assert steps[2][1] == f'HEROES="heroes-fl[node]=={heroes.__version__}"'
    assert all("=" in word for word in dict(steps)["ENV"].split())


def test_the_gate_lets_nodes_through_and_nothing_else(starters: Path) -> None:
    for kind, inner in (("systemd", "127.0.0.1"), ("docker", "superlink")):
        text = (starters / kind / "gate.conf").read_text()
        assert text.count("{") == text.count("}") == 3
        assert f"location /v1/fleet/ {{\n        proxy_pass https://{inner}:8001;" in text
        assert "location / {\n        return 403;" in text


def test_further_nodes_get_units_of_their_own_and_nothing_is_replaced(starters: Path) -> None:
    before = {path: path.read_bytes() for path in starters.rglob("*") if path.is_file()}
    more = ["--name", "attic", "--first", "2", "--host", "fl.example.org", "--systemd", "--docker"]
    assert keys(starters, *more).returncode == 0
    after = {path: path.read_bytes() for path in starters.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before
    assert {path.name for path in after.keys() - before.keys()} == {
        "attic.key",
        "attic.pub",
        "heroes-attic.service",
        "compose-2.yaml",
    }
    assert "is there already" in keys(starters, "--name", "cellar", *more[2:]).said
