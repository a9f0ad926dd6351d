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
from heroes.report import Summary, compare, load_run, read_config, read_records
from heroes.report.curve import score_curve
from heroes.settings.config import Config, to_toml

CLIENT = ClientRecord(3, "board-1", 1, (0,), (0,), 5, 6.0, 4.0, 0.5, 20, 30, False, 0.7, 12)
FACTS = {"counters": (1, 2, 3, 4), "counter_variance": 0.5, "estimates": Estimates(0.1, 0.2), "bound": 1.0}
ROWS = [
    plain(
        RoundRecord(
            round=n,
            seconds=10.0 * n,
            duration=10.0,
            waiting=0.5,
            bytes_up=20,
            bytes_down=30,
            traffic=50 * n,
            learning_rate=0.1,
            loss=0.7,
            missing=(Lost(4, "late"),),
            clients=(CLIENT,),
            facts=FACTS,
            scores={"accuracy": 0.5, "rmse": 2.0},
            scores_by_width={1: {"accuracy": 0.25}},
        )
    )
    for n in (1, 2, 3)
]
ROWS[1] |= {"metric": "rmse", "lower_is_better": True}
ROWS[-1] |= {"stopped": "rounds"}
OLD_ROWS = [
    {key: value for key, value in row.items() if key not in ("scores", "scores_by_width", "metric")}
    | {"accuracy": 0.5, "accuracy_by_width": {"1": 0.25}, "tau_star": 3.0, "threshold_unreachable": True}
    for row in ROWS
]
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
    for read in (read_records, read_config):
        with suppress(HeroesError):
            read(folder)
    with suppress(HeroesError):
        run = load_run(folder)
        assert isinstance(str(Summary.of(run.rows)), str)
        assert all(isinstance(row, RoundRecord) for row in run.rows)
        score_curve(run.rows)
        json.dumps(Summary.of(run.rows).as_json(), allow_nan=False)
        "\n".join(compare([run]).lines()).encode()


@pytest.mark.parametrize("rows", [ROWS, OLD_ROWS], ids=["new", "of 0.1.0"])
def test_rows(fuzz, rows):
    load_run(folder_of(lines(rows)))
    changed = mutated_tree(rows, 4).filter(lambda found: isinstance(found, list)).map(lines)
    fuzz(run_folder, st.tuples(changed))


def test_bytes(fuzz):
    raw = mutated_bytes([lines(ROWS)])
    fuzz(run_folder, st.tuples(raw) | st.tuples(st.just(lines(ROWS)), mutated_bytes([CONFIG.encode()])))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": 10**400}, "not a number below"),
        ({"scores": {"accuracy": 1e20}}, r"scores.accuracy is 1e\+20; it should be from 0 to 1"),
        ({"loss": "low"}, "loss is 'low': it should be a valid number"),
        ({"facts": [1]}, r"facts is \[1\]: it should be an object"),
        ({"facts": {"x": "\ud800"}}, "it is not a record in JSON"),
        ({"stopped": ["x"]}, r"stopped is \['x'\]: it should be a valid string"),
        ({"missing": [{"client": 1}]}, "missing.0.reason is missing"),
        ({"scores_by_width": {"1" * 5000: {}}}, "scores_by_width"),
    ],
)
def test_what_was_found_stays_refused(change, said):
    with pytest.raises(RunFolderError, match=f"line 1 of .* is damaged: .*{said}"):
        load_run(folder_of(lines([ROWS[0] | change])))


def test_a_client_that_cannot_be_is_named():
    with pytest.raises(
        RunFolderError, match=r"line 2 of .*records\.jsonl' is damaged: clients\.0\.tau is 'many': .*integer"
    ):
        load_run(folder_of(lines([ROWS[0], ROWS[1] | {"clients": [plain(CLIENT) | {"tau": "many"}]}])))


def test_a_deep_configuration_is_refused():
    with pytest.raises(RunFolderError, match="nested too deeply"):
        load_run(folder_of(lines(ROWS), ("a." * 3000 + "a = 1").encode()))
