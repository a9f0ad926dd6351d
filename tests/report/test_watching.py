"""The page that follows runs: its events as they are sent, and in a browser while a run trains."""

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from hand_made import record, write_records, write_run
from patience import patience

import heroes
from heroes.errors import ConfigError, RunFolderError
from heroes.messages import Abandoned, Lost, RoundRecord, plain
from heroes.report.following import PIECE, Follower, runs_in
from heroes.report.watching import MOST_VIEWERS, Watch

Make = Callable[..., Path]


@contextmanager
def served(folder: Path, **given: Any) -> Iterator[Watch]:
    with Watch(folder, port=0, **given) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(server: Watch, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    link = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=patience(20))
    link.request("GET", path, headers=headers)
    answer = link.getresponse()
    text = "" if answer.headers["Content-Type"].startswith("text/event") else answer.read().decode()
    link.close()
    return answer.status, text, answer.headers


def append(folder: Path, row: RoundRecord) -> None:
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(plain(row)) + "\n")


def test_only_what_was_added_is_told(make_run: Make) -> None:
    folder = make_run("run", [0.5, 0.6])
    follower = Follower(folder)
    first = follower.news()
    assert first is not None
    assert [row["round"] for row in first["rows"]] == [1, 2]
    assert (first["reset"], first["error"]) == (True, None)
    assert first["about"]["strategy"] == "heroes"
    assert follower.news() is None
    append(folder, record(3, 0.7))
    later = follower.news()
    assert later is not None
    assert [(row["round"], row["score"]) for row in later["rows"]] == [(3, 0.7)]
    assert later["reset"] is False
    assert later["grid"] == [30.0, 24.0, 24.0, 36.0]
    assert later["clients"][1]["rounds"] == 3


def test_half_a_line_waits_for_the_other_half(make_run: Make) -> None:
    folder = make_run("run", [0.5])
    follower = Follower(folder)
    follower.news()
    line = json.dumps(plain(record(2, 0.6))) + "\n"
    with (folder / "records.jsonl").open("a") as file:
        file.write(line[:40])
        file.flush()
        assert follower.news() is None
        file.write(line[40:])
    found = follower.news()
    assert found is not None
    assert [row["round"] for row in found["rows"]] == [2]


def test_long_records_are_read_in_pieces(make_run: Make) -> None:
    folder = make_run("run", [0.5])
    filler = {"counters": [1, 2, 3, 4], "notices": ["x" * 9000] * 50}
    write_records(folder, [record(number, 0.5, facts=filler) for number in range(1, 8)])
    assert (folder / "records.jsonl").stat().st_size > 2 * PIECE
    follower, rounds = Follower(folder), []
    while (found := follower.news()) is not None or follower.behind:
        rounds += [row["round"] for row in (found or {}).get("rows", [])]
    assert rounds == [1, 2, 3, 4, 5, 6, 7]


def test_a_run_that_goes_on_from_before_begins_anew(make_run: Make) -> None:
    folder = make_run("run", [0.5, 0.6, 0.7])
    follower = Follower(folder)
    follower.news()
    (folder / "new").write_text("".join(json.dumps(plain(record(n, 0.1))) + "\n" for n in (1, 2)))
    os.replace(folder / "new", folder / "records.jsonl")
    found = follower.news()
    assert found is not None
    assert found["reset"] is True
    assert [row["round"] for row in found["rows"]] == [1, 2]
    assert found["clients"][0]["rounds"] == 2


def test_losses_are_counted_by_client_and_cause(make_run: Make) -> None:
    folder = make_run("run", [0.5])
    gone = Abandoned(3.0, 0, 0, (0, 1), (Lost(1, "no answer", "late"),))
    append(folder, replace(record(2), missing=(Lost(0, "w is not finite", "finite"),), abandoned=(gone,)))
    found = Follower(folder).news()
    assert found is not None
    assert [(each["client"], each["cause"]) for each in found["log"]] == [(1, "late"), (0, "finite")]
    first, second = found["clients"]
    assert (first["lost"], first["seen"], second["lost"], second["seen"]) == ({"finite": 1}, 1, {}, 2)
    assert [each["lost"] for each in found["timeline"]["clients"]] == ["finite", None]


@pytest.mark.parametrize(
    ("line", "said"),
    [("nonsense", "line 2 of records.jsonl is damaged"), ('{"round": 2}', "is missing"), ("3", "it is 3")],
)
def test_a_damaged_line_is_told_and_what_came_before_is_shown(make_run: Make, line: str, said: str) -> None:
    folder = make_run("run", [0.5])
    with (folder / "records.jsonl").open("a") as file:
        file.write(f"{line}\n")
    follower = Follower(folder)
    found = follower.news()
    assert found is not None
    assert [row["round"] for row in found["rows"]] == [1]
    assert said in found["error"]
    append(folder, record(3))
    assert follower.news() is None


def test_a_folder_that_vanishes_is_told_once_and_is_followed_again(make_run: Make) -> None:
    folder = make_run("run", [0.5])
    follower = Follower(folder)
    follower.news()
    away = folder.rename(folder.with_name("away"))
    found = follower.news()
    assert found is not None
    assert found["error"] == "the run folder is gone"
    assert follower.news() is None
    away.rename(folder)
    back = follower.news()
    assert back is not None
    assert back["error"] is None


def test_a_run_that_has_not_begun_is_told(tmp_path: Path) -> None:
    found = Follower(tmp_path).news()
    assert found is not None
    assert found["error"] == "no round is finished yet"


def test_a_broken_configuration_is_told(make_run: Make) -> None:
    run = make_run("run", [0.5])
    (run / "config.toml").write_text("x = [")
    found = Follower(run).news()
    assert found is not None
    assert "config.toml" in found["error"]
    assert len(found["rows"]) == 1  # its rounds are shown all the same


def test_links_and_pipes_are_not_read(make_run: Make, tmp_path: Path) -> None:
    secret = make_run("secret", [0.5])
    top = tmp_path / "top"
    alone = write_run(_made(top) / "one", [0.5])
    (top / "linked").symlink_to(secret)
    (top / "pipe").mkdir()
    (top / "pipe" / "config.toml").touch()
    os.mkfifo(top / "pipe" / "records.jsonl")
    (top / "file").mkdir()
    (top / "file" / "config.toml").touch()
    (top / "file" / "records.jsonl").symlink_to(secret / "records.jsonl")
    (write_run(top / "bare", [0.5]) / "config.toml").unlink()  # its records are still worth a look
    assert set(runs_in(top)) == {"one", "pipe", "file", "bare"}
    assert set(runs_in(alone)) == {"one"}
    for name, said in (("pipe", "not a plain file"), ("file", "cannot be read")):
        found = Follower(top / name).news()
        assert found is not None
        assert said in found["error"]
        assert "rows" not in found


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_server_has_two_addresses_and_a_strict_policy(make_run: Make) -> None:
    with served(make_run("run", [0.5])) as server:
        assert server.url.startswith("http://127.0.0.1:")
        code, page, headers = asked(server, "/")
        assert (code, "<title>heroes watch</title>" in page) == (200, True)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
        for path in ("/records.jsonl", "/../config.toml", "/run", "//etc/passwd", "/events/../x"):
            assert asked(server, path)[0] == 404, path


def test_a_page_of_another_name_cannot_read_it(make_run: Make) -> None:
    """A name of an attacker's may point here; browsers send it as the host."""
    with served(make_run("run", [0.5])) as server:
        assert asked(server, "/events", Host="evil.example:80")[0] == 403
        assert "open the address that `heroes watch` printed" in asked(server, "/", Host="[evil")[1]
        for name in ("localhost:80", "localhost", "127.0.0.1", "[::1]:8080", "[::1]"):
            assert asked(server, "/", Host=name)[0] == 200, name


def test_it_listens_on_the_loopback_of_the_other_family_too(make_run: Make) -> None:
    try:
        server = Watch(make_run("run", [0.5]), host="::1", port=0)
    except ConfigError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert (server.token, server.url.startswith("http://[::1]:")) == (None, True)
    server.server_close()


def test_beyond_this_machine_a_token_is_needed(make_run: Make) -> None:
    with served(make_run("run", [0.5]), host="0.0.0.0") as server:
        assert server.token is not None
        assert server.url.endswith(f"/?token={server.token}")
        assert "0.0.0.0" not in server.url  # which leads nowhere
        for path in ("/", "/events", "/?token=", "/events?token=wrong", "/?token=%C3%A4"):
            assert asked(server, path)[0] == 403, path
        assert asked(server, f"/?token={server.token}")[0] == 200
        assert asked(server, f"/events?token={server.token}")[0] == 200


def test_viewers_are_counted_and_let_go(make_run: Make) -> None:
    with served(make_run("run", [0.5])) as server:
        for _ in range(MOST_VIEWERS):
            server.viewers.acquire()
        assert asked(server, "/events")[0] == 503
        server.viewers.release()
        assert asked(server, "/events")[0] == 200


def test_mistakes_are_told(make_run: Make, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is no folder"):
        Watch(tmp_path / "gone")
    with (
        served(make_run("run", [0.5])) as server,
        pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1 port .* --port"),
    ):
        Watch(tmp_path, port=server.server_address[1])
    with pytest.raises(ConfigError, match=r"cannot listen on nowhere\.invalid .*another with --host"):
        Watch(tmp_path, host="nowhere.invalid", port=0)


NOTES = "document.getElementById('notes').textContent"
FACTS = "document.getElementById('facts').textContent"
ROWS = "document.querySelectorAll('#clients tbody tr').length"


def test_rows_appear_in_a_browser_while_a_run_trains(chromium: Browser, tmp_path: Path) -> None:
    """One page is open from before the first round; it is never loaded again."""
    top, go_on = tmp_path / "runs", threading.Event()
    top.mkdir()
    config = heroes.recipes.digits(rounds=3).changed({"training.probes": 0, "engine.name": "in_process"})

    def train() -> None:
        def slowly(row: RoundRecord) -> None:
            if row.round == 1:
                assert go_on.wait(patience(120))

        heroes.run(config, out=top / "live", on_round=slowly)

    trainer = threading.Thread(target=train)
    with served(top) as server, chromium.tab() as page:
        page.open(server.url)
        page.wait(NOTES, lambda text: "no run in this folder" in text)
        trainer.start()
        try:
            page.wait(FACTS, lambda text: "round1 of 3" in text)
            asked_first = page.ask(ROWS)
            assert asked_first == 10
        finally:
            go_on.set()
            trainer.join()
        page.wait(FACTS, lambda text: "round3 of 3" in text)
        assert page.ask(ROWS) > asked_first
        assert "ended: rounds" in page.ask(FACTS)
        assert page.ask("document.querySelectorAll('#grid rect').length") == 16
        assert page.ask("document.querySelectorAll('#timeline rect').length") == 30
        assert page.ask("document.querySelector('#score polyline').points.numberOfItems") == 3


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


ASKED = {"round": 2, "attempt": 0}
ONE = {"client": 4, "device": "board-1", "width": 1, "tau": 5}
TWO = {"client": 7, "device": "board-2", "width": 2, "tau": 9}


def test_the_round_that_goes_on_is_told_as_clients_come_in(make_run: Make, chromium: Browser) -> None:
    folder = make_run("run", [0.5])
    (folder / "records.jsonl").write_text(
        (folder / "records.jsonl").read_text().replace('"stopped": "rounds"', '"stopped": null')
    )
    follower, now = Follower(folder), folder / "now.jsonl"
    assert (follower.news() or {})["now"] is None
    now.write_text(lines({**ASKED, "clients": [ONE, TWO]}))
    with served(folder) as server, chromium.tab() as page:
        page.open(server.url)
        told = "document.getElementById('going-name').textContent"
        page.wait(told, lambda text: text == "Now: round 2, 0 of 2 have answered")
        with now.open("a") as file:
            file.write(lines({"client": 7, "lost": "finite", "seconds": 1.5}))
        page.wait(told, lambda text: text == "Now: round 2, 1 of 2 have answered, 1 of them lost")
        assert page.ask("document.querySelectorAll('#now .gone').length") == 1
        append(folder, record(2, 0.6))
        page.wait("document.getElementById('going').hidden")
    found = follower.news()
    assert found is not None
    assert found["now"]["clients"] == [
        {**ONE, "lost": None, "seconds": None},
        {**TWO, "lost": "finite", "seconds": 1.5},
    ]


@pytest.mark.parametrize("text", ["", "nonsense\n", "{}\n", lines({**ASKED, "clients": 3}), lines([1], [2])])
def test_what_a_run_tells_of_its_round_may_be_nonsense(make_run: Make, text: str) -> None:
    folder = make_run("run", [0.5])
    (folder / "now.jsonl").write_text(text)
    found = Follower(folder).news()
    assert found is not None
    assert (found["now"], found["error"]) == (None, None)


def test_the_table_is_sorted_by_what_is_pressed(make_run: Make, chromium: Browser) -> None:
    with served(make_run("run", [0.5])) as server, chromium.tab() as page:
        page.open(server.url)
        page.wait(ROWS)
        first = "document.querySelector('#clients tbody td:nth-child(4)').textContent"
        assert page.ask(first) == "5"
        press = (
            "[...document.querySelectorAll('th button')].find(b => b.textContent.startsWith('tau')).click()"
        )
        page.ask(press)
        assert page.ask(first) == "5"
        page.ask(press)
        assert page.ask(first) == "6"
        assert page.ask("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"


def test_marks_on_an_axis_differ_also_where_values_hardly_do(make_run: Make, chromium: Browser) -> None:
    folder = make_run("run", [0.5])
    write_records(folder, [replace(record(n, 0.5), loss=2.32 + n / 5000) for n in (1, 2, 3)])
    with served(folder) as server, chromium.tab() as page:
        page.open(server.url)
        page.wait("document.querySelectorAll('#loss text').length", lambda count: count > 4)
        marks = page.ask("[...document.querySelectorAll('#loss text')].map(text => text.textContent)")
        assert len(set(marks)) == len(marks)
        assert "2.3204" in marks


def test_nodes_have_names_and_memory_and_simulated_clients_neither(make_run: Make, chromium: Browser) -> None:
    folder = make_run("run", [0.5])
    titles = "[...document.querySelectorAll('#clients thead th')].map(th => th.textContent)"
    with served(folder) as server, chromium.tab() as page:
        page.open(server.url)
        page.wait(ROWS)
        assert not {"name", "memory"} & set(page.ask(titles))
        first, second = record(2).clients
        nodes = (replace(first, name="kitchen", memory=311_000_000), replace(second, name="garage"))
        append(folder, replace(record(2), clients=nodes))
        append(folder, replace(record(3), missing=(Lost(0, "gone", "late"),)))  # the name is still known
        page.wait(
            "document.getElementById('log').textContent", lambda text: "client 0 (kitchen): late" in text
        )
        assert page.ask(titles)[:2] == ["client ↑", "name"]
        assert page.ask(titles)[-1] == "memory"
        row = "[...document.querySelector('#clients tbody tr').cells].map(td => td.textContent)"
        assert (page.ask(row)[1], page.ask(row)[-1]) == ("kitchen", "311 MB")
        page.ask("[...document.querySelectorAll('th button')].at(-1).click()")
        assert page.ask(row)[1] == "garage"  # which says nothing of its memory


EVIL = "<img src=x onerror=document.title=1><script>document.title=1</script>"


def test_names_and_reasons_are_text_and_broken_runs_are_said(
    make_run: Make, chromium: Browser, tmp_path: Path
) -> None:
    folder = make_run("run", [0.5], strategy="heroes")
    text = (
        (folder / "records.jsonl")
        .read_text()
        .replace("board-1", EVIL)
        .replace('"name": ""', f'"name": "{EVIL}"')
    )
    (folder / "records.jsonl").write_text(text)
    append(folder, replace(record(2), missing=(Lost(0, EVIL, EVIL),), metric=EVIL[:36]))
    with served(folder) as server, chromium.tab() as page:
        page.open(server.url)
        page.wait(ROWS)
        shown = page.ask("document.body.textContent")
        assert shown.count(EVIL) >= 3
        assert page.ask("document.querySelectorAll('main img, main script').length") == 0
        with (folder / "records.jsonl").open("a") as file:
            file.write("torn\n")
        page.wait(NOTES, lambda said: "line 3 of records.jsonl is damaged" in said)
        folder.rename(tmp_path / "away")
        page.wait(NOTES, lambda said: "the run folder is gone" in said)
        time.sleep(0.1)
        assert page.ask("document.title") == "heroes watch"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_several_runs_fit_on_a_screen_and_on_a_phone(
    width: int, dark: bool, chromium: Browser, tmp_path: Path
) -> None:
    top = _made(tmp_path / "top")
    write_run(top / "a", [0.5, 0.6])
    write_run(top / "b", [0.4, 0.8], strategy="fedavg")
    with served(top) as server, chromium.tab() as page:
        page.open(server.url, width=width, dark=dark)
        page.wait("document.querySelectorAll('#runs button').length", lambda count: count == 2)
        page.wait("document.querySelectorAll('#score polyline').length", lambda count: count == 2)
        page.ask("[...document.querySelectorAll('#runs button')][1].click()")
        assert "fedavg" in page.ask("document.getElementById('about').textContent")
        size = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.ask(size) <= 0
        back = page.ask("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)")
