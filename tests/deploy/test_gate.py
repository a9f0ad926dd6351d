"""The gate that `heroes flower keys` writes, in a real nginx: nodes come through, and nobody else."""

import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deployed_app import answered, make_app, run_to_the_end, settings
from loopback import Federation, Keys, free_port, listens, records, wait_until

pytestmark = pytest.mark.deploy
NGINX = """daemon off;
pid nginx.pid;
error_log error.log info;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{gate}
}}
"""
CLOSED = (
    "/v1/control/list-runs",
    "/v1/control/start-run",
    "/v1/runtime/acquire-task",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "//v1/control/list-runs",
    "/",
)


@contextmanager
def gate(folder: Path, keys: Path, port: int, superlink: int) -> Iterator[None]:
    """An nginx with the gate as it was written, but for paths and ports."""
    program = shutil.which("nginx")
    assert program is not None, "nginx is missing: make gate installs it"
    text = (keys / "systemd" / "gate.conf").read_text()
    changes = {"/etc/heroes": str(keys), ":8001": f":{superlink}", "listen 8000": f"listen {port}"}
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX.format(gate=text))
    where = ["-p", str(folder), "-c", "nginx.conf", "-e", str(folder / "error.log")]
    process = subprocess.Popen([program, *where])
    try:
        wait_until(lambda: listens(port) or process.poll() is not None, 30)
        yield
    finally:
        process.terminate()
        process.wait(10)


def status(port: int, path: str, keys: Path) -> int:
    """What is answered to a request without a body."""
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    request = urllib.request.Request(f"https://localhost:{port}{path}", b"", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.timeout(600)
def test_a_node_trains_through_the_gate_and_every_other_request_is_refused(tmp_path: Path) -> None:
    keys, port = tmp_path / "keys", free_port()
    words = ["flower", "keys", str(keys), "--nodes", "1", "--host", "localhost", "--systemd"]
    subprocess.run([sys.executable, "-m", "heroes.cli", *words], check=True, stdout=subprocess.DEVNULL)
    command = (sys.executable, "-m", "heroes.cli", "flower", "node")
    federation = Federation(
        tmp_path / "federation",
        Keys(keys),
        server_for=lambda number: "localhost",
        node_port=port,
        node_command=command,
    )
    with federation:
        federation.superlink()
        with gate(tmp_path / "gate", keys, port, federation.port):
            assert {path: status(port, path, keys) for path in CLOSED} == dict.fromkeys(CLOSED, 403)
            assert status(federation.port, CLOSED[0], keys) != 403  # who is on the machine is not refused
            federation.register(0)
            node = federation.supernode(0)
            app = make_app(tmp_path / "app", nodes=1)
            run = run_to_the_end(federation, app, settings(tmp_path / "run", rounds=1))
            assert run.well(), run.text()
            node.process.terminate()
            assert node.process.wait(30) == 0
    assert [answered(record) for record in records(tmp_path / "run")] == [{0}]
