"""Any run folder is read and summed up, or refused by a HeroesError."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from fuzz_targets import file_of
from fuzzing import mutated_bytes, mutated_tree
from hypothesis import strategies as st

from heroes.errors import HeroesError, RunFolderError
from heroes.messages import ClientRecord, Lost, RoundRecord, plain
from heroes.planning.pacing import Estimates
from heroes.report import Summary, load_run, read_config, read_records
from heroes.report.curve import accuracy_curve
from heroes.runs.running import _records
from heroes.settings.config import Config, to_toml

CLIENT = ClientRecord(3, "board-1", 1, (0,), (0,), 5, 6.0, 4.0, 0.5, 20, 30, False, 0.7, 12)
FACTS = {"counters": (1, 2, 3, 4), "counter_variance": 0.5, "estimates": Estimates(0.1, 0.2), "bound": 1.0}
ROWS = [
    plain(
        RoundRecord(
            n,
            10.0 * n,
            10.0,
            0.5,
            20,
            30,
            50 * n,
            0.1,
            0.7,
            5.0,
            3,
            "rounds",
            9.0,
            False,
            FACTS,
            (Lost(4, "late"),),
            (CLIENT,),
        )
    )
    for n in (1, 2, 3)
]
ROWS[-1] |= {"accuracy": 0.5, "accuracy_by_width": {"1": 0.25}, "stopped": "rounds"}
CONFIG = to_toml(Config())


def folder_of(records: bytes, config: bytes = CONFIG.encode()) -> Path:
    folder = file_of(b"").with_name("run")
    folder.mkdir(exist_ok=True)
    (folder / "records.jsonl").write_bytes(records)
    (folder / "config.toml").write_bytes(config)
    return folder


def lines(rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def run_folder(content):
    folder = folder_of(*content)
    for read in (read_records, read_config, _records):
        with suppress(HeroesError):
            read(folder)
    with suppress(HeroesError):
        run = load_run(folder)
        assert isinstance(str(Summary.of(run.rows)), str)
        accuracy_curve(run.rows)


def test_rows(fuzz):
    fuzz(run_folder, st.tuples(mutated_tree(ROWS, 4).filter(lambda rows: isinstance(rows, list)).map(lines)))


def test_bytes(fuzz):
    raw = mutated_bytes([lines(ROWS)])
    fuzz(run_folder, st.tuples(raw) | st.tuples(st.just(lines(ROWS)), mutated_bytes([CONFIG.encode()])))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": 10**400}, "not a number"),
        ({"accuracy": 1e20}, r"an accuracy is 1e\+20; it should be from 0 to 1"),
        ({"loss": "low"}, "loss is 'low', not a number"),
        ({"facts": [1]}, r"facts is \[1\], not a section"),
        ({"stopped": ["x"]}, r"stopped is \['x'\], not a text"),
        ({"missing": [{"client": 1}]}, "a missing client has no reason"),
        ({"accuracy_by_width": {"1" * 5000: 0.5}}, "accuracy_by_width is"),
    ],
)
def test_what_was_found_stays_refused(change, said):
    with pytest.raises(RunFolderError, match=f"line 1 of .* is damaged: .*{said}"):
        load_run(folder_of(lines([ROWS[0] | change])))


def test_records_that_a_run_cannot_go_on_from_are_named():
    with pytest.raises(
        RunFolderError, match=r"line 2 of .*records\.jsonl' is damaged: clients\.0\.tau: .*integer"
    ):
        _records(folder_of(lines([ROWS[0], ROWS[1] | {"clients": [plain(CLIENT) | {"tau": "many"}]}])))


def test_a_deep_configuration_is_refused():
    with pytest.raises(RunFolderError, match="nested too deeply"):
        load_run(folder_of(lines(ROWS), ("a." * 3000 + "a = 1").encode()))
