"""Words of others on a console: records, fleets, clients and configurations say what they like, and it is
shown as text.
"""

import io
import json
import os
import pty
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import HEROES, heroes
from hand_made import record, write_records, write_run
from typer.testing import CliRunner

from heroes.cli import commands  # noqa: F401 (they put themselves into the app)
from heroes.cli.app import app
from heroes.cli.console import PlainConsole
from heroes.cli.options import folder_name
from heroes.cli.progress import Notices
from heroes.errors import RunFolderError
from heroes.messages import Lost, plain

EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\u202e\x9b31m"
AS_TEXT = r"\x1b]0;owned\x07\x1b[2J\r\n\u202e\x9b31m"
WRONG = {
    "a word for a number": ("round", "one"),
    "nothing for a number": ("seconds", None),
    "not a number": ("seconds", float("nan")),
    "endless": ("duration", float("inf")),
    "half a byte": ("traffic", 1.5),
    "too many digits": ("bytes_up", 10**400),
    "a number for a list": ("clients", 3),
    "a number for a client": ("clients", [1]),
    "a client without anything": ("clients", [{}]),
    "a word for a lost update": ("missing", ["gone"]),
    "a list for scores": ("scores", [0.5]),
    "an accuracy of 700 %": ("scores", {"accuracy": 7.0}),
    "a word for a score": ("scores", {"accuracy": "good"}),
    "a width that is none": ("scores_by_width", {"wide": {"accuracy": 0.5}}),
    "a metric without a name": ("metric", ""),
    "a word for a count": ("lost", {"late": "two"}),
    "a number for facts": ("facts", 3),
    "a number for an end": ("stopped", 4),
    "a word for yes": ("lower_is_better", "yes"),
    "a text of a megabyte": ("clock", "x" * 1_000_000),
    "half a character": ("clock", "\ud800"),
}


def harmless(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    for letter in "\x1b\x07\r\u202e\x9b":
        assert letter not in done.stdout + done.stderr


@pytest.fixture
def evil_run(tmp_path: Path) -> Path:
    """A run whose records speak to terminals wherever they may hold a text."""
    folder = write_run(tmp_path / "evil", [0.5])
    client = replace(record(1).clients[0], device=EVIL)
    lost = Lost(1, EVIL, EVIL)
    rows = [
        record(n, 0.5, metric=EVIL, clients=(client,), missing=(lost,), lost={EVIL: 1}, clock=EVIL)
        for n in (1, 2)
    ]
    write_records(folder, [*rows[:-1], replace(rows[-1], stopped=EVIL)])
    return folder


def test_records_command_no_terminal(evil_run: Path, tmp_path: Path) -> None:
    shown = heroes("show", str(evil_run), cwd=tmp_path)
    compared = heroes("compare", str(evil_run), "--out", "compared", cwd=tmp_path)
    for done in (shown, compared):
        harmless(done)
        assert AS_TEXT in " ".join(done.stdout.split())
    page = (tmp_path / "compared" / "report.html").read_text(encoding="utf-8")
    assert "\x1b" not in page
    assert AS_TEXT in page


def test_a_fleet_commands_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("device,gflops\n\x1b]0;owned\x07[red]phone,3\n")
    done = heroes("fleet", "fleet.csv", "--model", "digits_cnn", "--clients", "5", cwd=tmp_path)
    harmless(done)
    assert r"\x1b]0;owned\x07[red]phone" in done.stdout


def test_an_experiment_commands_no_terminal_and_stays_in_its_folder(tmp_path: Path) -> None:
    """The live display of a real terminal, which understands escapes."""
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    name = json.dumps("x/../../../\x1b]0;owned\x07[red]y")
    (inner / "t.toml").write_text(
        f'base = "digits"\nexperiment = {name}\n[federation]\nrounds = 1\n[training]\nprobes = 0\n'
    )
    master, slave = pty.openpty()
    arguments = ["run", "t.toml", "--set", "engine.name=in_process", "--json"]
    running = subprocess.Popen([*HEROES, *arguments], stdout=subprocess.PIPE, stderr=slave, cwd=inner)
    os.close(slave)
    said = b""
    while True:
        try:
            said += os.read(master, 4096)
        except OSError:  # the other side was closed
            break
    stdout, _ = running.communicate()
    os.close(master)
    assert running.returncode == 0, said
    assert b"\x1b]0;owned" not in said
    assert b"\x1b" in said, "this was no terminal"
    assert b"[red]y" in said
    folder = inner / json.loads(stdout)["folder"]
    assert folder.parent == inner / "runs"
    assert {path.name for path in inner.iterdir()} == {"t.toml", "runs"}
    assert [path.name for path in tmp_path.rglob("records.jsonl")] == ["records.jsonl"]


def test_the_words_of_a_client_are_one_line() -> None:
    screen = io.StringIO()
    row = record(1, missing=(Lost(3, f"{EVIL}error: all is lost"),))
    Notices(PlainConsole(file=screen, force_terminal=True, highlight=False, width=300)).look_at(row)
    said = screen.getvalue()
    assert said.count("\n") == 1
    assert f"{AS_TEXT}error" in said
    for command in ("\x1b]", "\x1b[2J", "\x07", "\u202e", "\x9b"):
        assert command not in said


@pytest.mark.parametrize(("key", "value"), WRONG.values(), ids=WRONG)
def test_show_and_report_say_the_same_of_a_wrong_record(tmp_path: Path, key: str, value: object) -> None:
    folder = write_run(tmp_path / "run", [0.5, 0.6])
    rows = [plain(record(1, 0.5)), plain(record(2, 0.6)) | {key: value}]
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = []
    for command in (["show"], ["show", "--json"], ["report", "-o", str(tmp_path / "page.html")]):
        found = CliRunner().invoke(app, [*command, str(folder)])
        assert isinstance(found.exception, RunFolderError), (command, found.exception)
        said.append(str(found.exception))
    assert len(set(said)) == 1
    assert "line 2 of" in said[0]
    assert len(said[0]) < 400 + len(str(folder))
    assert not (tmp_path / "page.html").exists()


def test_folders_of_different_names_differ() -> None:
    names = ["a/b", "a-b", "a b", "..", ".", "", "x" * 1000, "x" * 1001, "\ud800", "\udfff", "/etc/passwd"]
    folders = [folder_name(name, 0) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert Path(folder).name == folder
        assert not folder.startswith(".")
        assert len(folder.encode()) < 150
