"""`heroes watch` as a process."""

import signal
import subprocess
import urllib.request
from pathlib import Path

from command_line import HEROES, heroes
from patience import patience


def test_it_prints_its_address_serves_the_page_and_ends_by_an_interrupt(tmp_path: Path) -> None:
    command = [*HEROES, "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=patience(20)) as page:
            assert b"<title>heroes watch</title>" in page.read()
        with urllib.request.urlopen(f"{url}events", timeout=patience(20)) as events:
            assert events.readline() == b'data: {"empty": "no run in this folder yet"}\n'
            process.send_signal(signal.SIGINT)  # while a page is open
            assert process.wait(patience(30)) == 130
        assert "interrupted" in (process.stderr.read() if process.stderr else "")


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    done = heroes("watch", str(tmp_path / "gone"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "is no folder" in done.stderr
    assert "Traceback" not in done.stderr
