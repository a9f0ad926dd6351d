"""`heroes flower keys`: files that others cannot read, certificates that a TLS handshake accepts, keys that
Flower accepts.
"""

import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key


def keys(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heroes.cli", "flower", "keys", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "keys"
    done = keys(
        folder, "--nodes", "2", "--host", "fl.example.org", "--host", "192.0.2.7", "--host", "2001:db8::7"
    )
    assert done.returncode == 0, done.stderr
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
    assert "already holds ca.key and 5 more" in refused.stderr
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
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(tmp_path: Path, words: list[str], said: str) -> None:
    done = keys(tmp_path / "keys", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "keys").exists()


def test_a_broken_authority_is_said_plainly(tmp_path: Path) -> None:
    assert keys(tmp_path, "--nodes", "1").returncode == 0
    (tmp_path / "ca.key").write_text("nonsense")
    done = keys(tmp_path, "--renew")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_the_commands_to_type_are_printed(tmp_path: Path) -> None:
    done = keys(tmp_path, "--nodes", "2", "--host", "fl.example.org")
    for part in (
        "flower-superlink",
        "flower-supernode --superlink fl.example.org:8000",
        "flwr supernode register",
        "ca.key: keep it",
    ):
        assert part in done.stdout
