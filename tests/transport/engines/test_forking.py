"""What `heroes flower node` is made of; `tests/deploy/test_smoke.py` runs two of them."""

import os
import signal
import sys
import time
from functools import partial

import pytest
from typer.testing import CliRunner

from heroes.cli.app import app
from heroes.cli.commands import run as _run  # noqa: F401 (registers the commands)
from heroes.errors import ConfigError
from heroes.transport.engines import flower
from heroes.transport.engines.flower import forking
from heroes.transport.engines.flower.forking import _runtime_address, end, ended, forked

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def waited(number: int) -> int:
    while (code := ended(number)) is None:
        time.sleep(0.01)
    return code


def fail() -> None:
    raise ValueError("a task can fail in any way")


@pytest.mark.parametrize(
    ("work", "code"),
    [(int, 0), (partial(sys.exit, 3), 3), (sys.exit, 0), (partial(sys.exit, "no"), 1), (fail, 1)],
)
def test_a_forked_process_does_its_work_and_ends_with_its_code(work, code):
    assert waited(forked(work)) == code


def test_a_forked_process_ends_when_it_is_told_to_and_when_it_does_not_listen():
    asked = forked(partial(time.sleep, 60))
    end(asked)
    with pytest.raises(ProcessLookupError):
        os.kill(asked, 0)

    def deaf() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)

    end(forked(deaf), patience=0.2)
    end(asked)  # which is gone


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ([], "127.0.0.1:9094"),
        (["--insecure", "--port", "9100", "--superlink", "a:8000"], "127.0.0.1:9100"),
        (["--host=::1"], "[::1]:9094"),
    ],
)
def test_tasks_are_asked_for_where_the_supernode_offers_them(words, address):
    assert _runtime_address(words) == address


def test_the_command_hands_its_arguments_on_and_ends_as_the_supernode_does(monkeypatch):
    given = []
    monkeypatch.setattr(forking, "serve", lambda arguments: given.extend(arguments) or 7)
    words = ["--insecure", "--node-config", "partition-id=0 slowness=2.0", "--port=9100"]
    assert CliRunner().invoke(app, ["flower", "node", *words]).exit_code == 7
    assert given == words


def test_a_flower_that_is_not_as_heroes_knows_it_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, forking.__name__, None)
    monkeypatch.delattr(flower, "forking")
    done = CliRunner().invoke(app, ["flower", "node", "--insecure"])
    assert isinstance(done.exception, ConfigError)
    assert "use flower-supernode with the same arguments" in str(done.exception)
