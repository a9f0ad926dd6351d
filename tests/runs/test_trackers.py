"""Trackers hear of every round, and never cost a run."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import heroes
from heroes.errors import ConfigError

SMALL = {
    "federation.clients": 4,
    "federation.cohort": 2,
    "federation.rounds": 3,
    "model.max_width": 1,
    "data.test_limit": 30,
    "training.device": "cpu",
    "engine.name": "in_process",
    "evaluation.every": 2,
}


def small(**changes: Any) -> heroes.Config:
    return heroes.recipes.digits().changed(SMALL | changes)


class Diary:
    """Writes down what it hears; fails in one of its methods if told so."""

    def __init__(self, fails: str = "") -> None:
        self.lines: list[Any] = []
        self.fails = fails

    def begin(self, settings: Any, folder: Any, done: Any) -> None:
        self.lines.append(("begin", settings["strategy.name"], folder, [record.round for record in done]))
        self._trip("begin")

    def round(self, record: Any) -> None:
        self.lines.append(record.round)
        self._trip("round")

    def end(self) -> None:
        self.lines.append("end")
        self._trip("end")

    def _trip(self, where: str) -> None:
        if where == self.fails:
            raise OSError("the pen broke")


def test_a_tracker_hears_of_a_run_from_its_beginning_to_its_end_and_again_when_it_goes_on(
    tmp_path: Path,
) -> None:
    diary = Diary()
    heroes.run(small(), out=tmp_path, track=[diary])
    heroes.resume(tmp_path, {"federation.rounds": 4}, track=[diary])
    assert diary.lines == [
        ("begin", "heroes", tmp_path, []),
        *[1, 2, 3, "end"],
        ("begin", "heroes", tmp_path, [1, 2, 3]),
        *[4, "end"],
    ]


@pytest.mark.parametrize("where", ["begin", "round", "end"])
def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(where: str) -> None:
    said: list[str] = []
    good, bad = Diary(), Diary(fails=where)
    run = heroes.run(small(), track=[bad, good], on_progress=lambda what, done, total: said.append(what))
    assert len(run.records) == 3
    assert good.lines[1:] == [1, 2, 3, "end"]
    assert [text for text in said if "tracker" in text] == [
        "the tracker 'Diary' failed and hears no more of this run: OSError: the pen broke"
    ]
    assert bad.lines.count("end") == (where == "end")


def test_csv_has_a_line_for_every_round_also_after_a_resume(tmp_path: Path) -> None:
    heroes.run(small(), out=tmp_path, track="csv")
    run = heroes.resume(tmp_path, {"federation.rounds": 5}, track=["csv"])
    with (tmp_path / "rounds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == [1, 2, 3, 4, 5]
    assert [float(row["seconds"]) for row in rows] == [record.seconds for record in run.records]
    assert [row["score"] for row in rows] == ["" if r.score is None else repr(r.score) for r in run.records]
    assert {row["metric"] for row in rows} == {"accuracy"}


def test_what_is_no_tracker_is_refused() -> None:
    with pytest.raises(ConfigError, match="track is 'cvs': did you mean 'csv'"):
        heroes.run(small(), track=["cvs"])
    with pytest.raises(ConfigError, match="the tracker 'int' has no method 'begin'"):
        heroes.run(small(), track=[7])  # type: ignore[list-item]


def test_live_tells_who_was_asked_and_who_is_in_while_a_round_goes_on(tmp_path: Path) -> None:
    seen: dict[int, list[Any]] = {}

    class Reader(Diary):
        """Reads the file whenever somebody has answered."""

        def asked(self, plan: Any) -> None:
            self.lines = []

        def answered(self, client: int, lost: str | None) -> None:
            first, *rest = map(json.loads, (tmp_path / "now.jsonl").read_text().splitlines())
            self.lines.append((client, lost))
            assert [(each["client"], each["lost"]) for each in rest] == self.lines
            seen[first["round"]] = first["clients"]

    with_live = heroes.run(small(**{"faults.garbage": 0.3}), out=tmp_path, track=["live", Reader()])
    planned = {
        row.round: [
            {"client": c.client, "device": c.device, "width": c.width, "tau": c.tau} for c in row.clients
        ]
        for row in with_live.records
    }
    assert seen == planned
    assert not (tmp_path / "now.jsonl").exists()
    plain = heroes.run(small(**{"faults.garbage": 0.3}))
    assert plain.records == with_live.records


def test_live_needs_a_folder_and_a_listener_that_fails_is_left_out() -> None:
    said: list[str] = []

    class Deaf(Diary):
        def asked(self, plan: Any) -> None:
            raise OSError("full")

        def answered(self, client: int, lost: str | None) -> None:
            raise AssertionError("it was left out")

    run = heroes.run(small(), track=["live", Deaf()], on_progress=lambda what, *_: said.append(what))
    assert run.summary().rounds == len(run.records)
    assert any("the tracker 'live' needs a run folder" in each for each in said)
    assert any("'Deaf' failed" in each and "full" in each for each in said)


def test_a_function_is_called_after_every_round_and_can_use_the_model() -> None:
    seen: list[Any] = []

    def look(moment: Any) -> None:
        module = moment.model(moment.widths[0])
        assert not module.training
        for parameter in module.parameters():
            parameter.data.zero_()  # its own copy: the run does not notice
        whole = sum(float(p.detach().abs().sum()) for p in moment.model().parameters())
        seen.append((moment.record.round, moment.settings["seed"], moment.folder, whole > 0))

    config = small(**{"model.max_width": 2})
    watched = heroes.run(config, track=[look])
    assert seen == [(1, 0, None, True), (2, 0, None, True), (3, 0, None, True)]
    assert heroes.run(config).records == watched.records


def test_a_moment_has_the_model_of_its_own_round() -> None:
    kept: list[Any] = []
    run = heroes.run(small(), track=[kept.append])
    first, last = (dict(kept[n].model().named_parameters()) for n in (0, -1))
    final = dict(run.model().named_parameters())
    assert all(bool((last[name] == final[name]).all()) for name in final)
    assert any(bool((first[name] != final[name]).any()) for name in final)


def test_a_function_that_fails_is_named_once_and_left_out() -> None:
    said: list[str] = []

    def broken(moment: Any) -> None:
        moment.model(99)

    heroes.run(small(), track=[broken], on_progress=lambda what, *_: said.append(what))
    assert [text for text in said if "tracker" in text] == [
        "the tracker 'broken' failed and hears no more of this run: ConfigError: width is 99: heroes serves "
        "the widths 1"
    ]


def test_trackers_of_the_configuration_hear_too_each_once(tmp_path: Path) -> None:
    config = small(**{"tracking.trackers": ["csv"]})
    heroes.run(config, out=tmp_path, track=["csv"])
    heroes.resume(tmp_path, {"federation.rounds": 4})
    assert len((tmp_path / "rounds.csv").read_text().splitlines()) == 5
    with pytest.raises(ConfigError, match="track is 'cvs'"):
        heroes.run(small(**{"tracking.trackers": ["cvs"]}))


def test_the_bar_draws_the_round_and_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, str]] = []

    class Shown:
        def update(self, data: dict[str, str], raw: bool) -> None:
            drawn.append(data)

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Shown:
        drawn.append(data)
        return Shown()

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    here: list[object] = [object()]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: here[0]))
    run = heroes.run(small(experiment="a<b"), track="bar")
    texts = [each["text/plain"] for each in drawn]
    assert texts[0] == "a<b, heroes · round 0 of 3"
    assert texts[1].startswith("a<b, heroes · round 1 of 3 · virtual time ")
    assert texts[3].endswith(f"accuracy {100 * (run.records[-1].score or 0):.2f} %")
    assert [each["text/html"].split('"')[1] for each in drawn] == ["0.000", "0.333", "0.667", "1.000"]
    assert drawn[3]["text/html"].startswith('<progress value="1.000" max="1"></progress> a&lt;b, heroes')
    drawn.clear()
    first = run.records[0]
    limits = {"federation.time_budget": first.seconds * 1.25, "federation.traffic_budget": 100.0}
    heroes.run(small(**limits), track="bar")
    assert [each["text/html"].split('"')[1] for each in drawn] == ["0.000", "0.800", "1.000"]
    assert drawn[-1]["text/plain"].endswith(" · ended: time budget")
    here[0] = None
    with pytest.raises(ConfigError, match="'bar' is for notebooks, and this is none"):
        heroes.run(small(), track="bar")
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(ConfigError, match="'bar' is for notebooks, and IPython is not installed"):
        heroes.run(small(), track="bar")
