"""Runs that heroes 0.1.0 began: they go on, and end as with 0.1.0 but for rounding: the layout is faster."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import heroes

ARCHIVE = Path(__file__).with_name("runs-0.1.0.tar.gz")


def begun(tmp_path, name):
    """The folder of a run that was killed after its last checkpoint."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / name
    done = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(done[:3]))  # as the last checkpoint has it
    return folder


def test_a_run_of_version_0_1_0_goes_on_and_ends_with_its_bits(tmp_path):
    folder = begun(tmp_path, "heroes")
    finished = heroes.resume(folder)
    expected = load_file(folder / "expected.safetensors")
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert all(
        torch.equal(finished.state.tensors[tensor], found[tensor]) for tensor in finished.state.tensors
    )
    rows = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    before = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    same = ("round", "seconds", "waiting", "traffic", "stopped")
    assert [[row[key] for key in same] for row in rows] == [[row[key] for key in same] for row in before]
    for key in ("loss", "test_loss"):
        assert [row[key] for row in rows] == pytest.approx([row[key] for row in before], rel=1e-5)
    assert [record.accuracy for record in finished.records] == [row["accuracy"] for row in before]


def test_a_run_whose_strategy_works_otherwise_now_is_refused_and_still_read(tmp_path):
    folder = begun(tmp_path, "adp")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(heroes.HeroesError, match=r"did not remember 'phi' yet, .*environment\.json"):
        heroes.resume(folder)
    assert {path: path.read_bytes() for path in before} == before
    assert heroes.report.load_runs([folder])[0].rows[-1].round == 3
