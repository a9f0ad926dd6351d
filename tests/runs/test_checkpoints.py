"""A checkpoint gives back exactly what was written, or an error that says what is wrong; the last good one
always stays.
"""

from __future__ import annotations

import json
import resource
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from heroes.errors import RunFolderError
from heroes.messages import ServerState
from heroes.planning.pacing import Estimates
from heroes.runs import checkpoints, contents
from heroes.strategies.heroes import HeroesMemory

MEMORY = HeroesMemory((3, 1, 0, 2), Estimates(0.1, 0.2, None, float("inf")), 0.7, 1e-30)
BEGIN = ServerState(
    0,
    {"b": torch.zeros(2, 3), "a": torch.zeros(()), "b:c": torch.zeros(4)},
    HeroesMemory((0, 0, 0, 0)),
)
STATE = ServerState(
    7,
    {
        "b": torch.tensor([[1.5, -0.0, 1e-42], [float("inf"), 2.0, 3.0]]),
        "a": torch.tensor(0.1),
        "b:c": torch.ones(4),
    },
    MEMORY,
    seconds=0.1 + 0.2,
    bytes_up=2**60 + 1,
    bytes_down=5,
    residuals={9: {"b": torch.ones(2, 3)}, 2: {"b:c": torch.zeros(4)}},
    measured={3: (1e9, 2.5, 1e5, 0.0, -1.5), 0: (1 / 3, 7.0, 1.0, 2.0, 0.1)},
    sampler={"seen": {"3": [1, 0.1, None]}, "name": "x"},
    moments={
        "first": {"b": torch.full((2, 3), 1e-42), "a": torch.tensor(0.3)},
        "second": {"a": torch.tensor(2.0)},
    },
    averaged={"b": torch.full((2, 3), -0.0), "a": torch.tensor(0.7), "b:c": torch.zeros(4)},
)


def same(one, other):
    assert list(one.tensors) == list(other.tensors)
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)
    assert [(c, list(t)) for c, t in one.residuals.items()] == [
        (c, list(t)) for c, t in other.residuals.items()
    ]
    assert all(torch.equal(t[n], other.residuals[c][n]) for c, t in one.residuals.items() for n in t)
    for mine, others in ((one.moments | {"": one.averaged}, other.moments | {"": other.averaged}),):
        assert [(kind, list(of)) for kind, of in mine.items()] == [(k, list(of)) for k, of in others.items()]
        assert all(torch.equal(t, others[kind][n]) for kind, of in mine.items() for n, t in of.items())
    blank = {"tensors": {}, "residuals": {}, "moments": {}, "averaged": {}}
    assert replace(one, **blank) == replace(other, **blank)


def test_what_is_read_is_what_was_written_to_the_last_bit(tmp_path):
    same(checkpoints.read(checkpoints.write(tmp_path, STATE), BEGIN), STATE)
    memoryless = replace(STATE, memory=None)
    same(checkpoints.read(checkpoints.write(tmp_path, memoryless), replace(BEGIN, memory=None)), memoryless)


def test_an_average_that_is_the_model_itself_is_kept(tmp_path):
    shared = replace(STATE, averaged=dict(STATE.tensors))  # as where nobody has trained yet
    same(checkpoints.read(checkpoints.write(tmp_path, shared), BEGIN), shared)


def test_the_last_two_are_kept_and_the_newest_whole_one_is_read(tmp_path):
    for number in (8, 9, 10_000_000):
        newest = checkpoints.write(tmp_path, replace(STATE, round=number))
    assert [path.name for path in checkpoints.found(tmp_path)] == [
        "round-10000000.safetensors",
        "round-0000009.safetensors",
    ]
    assert checkpoints.read_last(tmp_path, BEGIN).round == 10_000_000
    newest.write_bytes(newest.read_bytes()[:-1])
    assert checkpoints.read_last(tmp_path, BEGIN).round == 9


def test_without_a_checkpoint_a_run_goes_on_from_its_beginning(tmp_path):
    assert checkpoints.read_last(tmp_path / "none", BEGIN) is BEGIN


def test_when_none_is_whole_the_error_says_what_is_wrong_with_the_newest(tmp_path):
    checkpoints.write(tmp_path, STATE).write_bytes(b"not a checkpoint")
    with pytest.raises(RunFolderError, match=r"round-0000007\.safetensors"):
        checkpoints.read_last(tmp_path, BEGIN)


def changed(path, change=lambda values: values, replaced=lambda tensors: tensors):
    """The checkpoint with its description or tensors changed and its digest right."""
    with checkpoints.safe_open(path, "pt") as file:
        tensors = replaced({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        values = json.loads(file.metadata()["state"])
    text = json.dumps(change(values))
    path.write_bytes(save(tensors, metadata={"state": text, "digest": contents.digest(text, tensors)}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v | {"version": 2}, "version 2; this heroes reads 1"),
        (lambda v: [], "damaged"),
        (lambda v: {k: x for k, x in v.items() if k != "round"}, "damaged: round is .*: Field required"),
        (lambda v: v | {"round": "soon"}, "damaged"),
        (lambda v: v | {"memory": {"counters": "x"}}, "damaged"),
        (lambda v: v | {"clients": [1]}, "damaged"),
        (lambda v: v | {"measured": {"3": [1.0, 2.0, 3.0, 4.0]}}, "damaged"),
        (lambda v: v | {"measured": {"3": [0.0, 2.0, 3.0, 4.0, 5.0]}}, "damaged"),
        (lambda v: v | {"measured": {"3": [1.0, float("nan"), 3.0, 4.0, 5.0]}}, "damaged"),
        (lambda v: v | {"measured": {"-1": [1.0, 2.0, 3.0, 4.0, 5.0]}}, "damaged"),
    ],
)
def test_a_wrong_description_is_refused(tmp_path, change, said):
    path = checkpoints.write(tmp_path, STATE)
    changed(path, change)
    with pytest.raises(RunFolderError, match=said):
        checkpoints.read(path, BEGIN)


def test_a_checkpoint_from_before_anything_was_measured_is_read(tmp_path):
    path = checkpoints.write(tmp_path, STATE)
    changed(path, lambda v: {k: x for k, x in v.items() if k != "measured"})
    same(checkpoints.read(path, BEGIN), replace(STATE, measured={}))


def test_a_checkpoint_from_before_samplers_and_optimisers_is_read(tmp_path):
    path = checkpoints.write(tmp_path, STATE)
    changed(
        path,
        lambda v: {k: x for k, x in v.items() if k != "sampler"},
        lambda tensors: {n: t for n, t in tensors.items() if not n.startswith(("moment:", "average:"))},
    )
    same(checkpoints.read(path, BEGIN), replace(STATE, sampler=None, moments={}, averaged={}))


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        (
            "moment:first:b",
            torch.zeros(3, 2),
            r"its moment 'first' of 'b' is .*\(3, 2\) instead of .*\(2, 3\)",
        ),
        ("moment:first:b", torch.zeros(2, 3, dtype=torch.float64), "'b' is torch.float64 of shape"),
        ("moment:first:c", torch.zeros(2), "a moment 'first' of 'c', a tensor that the model does not have"),
        ("moment:first", torch.zeros(2), "a moment 'first' of '', a tensor that"),
        ("average:b", torch.zeros(3, 2), "its moving average is not one of the configured model"),
        ("average:c", torch.zeros(2), "its moving average is not one of the configured model"),
    ],
)
def test_moments_and_averages_of_another_model_are_refused(tmp_path, name, tensor, said):
    path = checkpoints.write(tmp_path, STATE)
    changed(path, replaced=lambda tensors: tensors | {name: tensor})
    with pytest.raises(RunFolderError, match=said):
        checkpoints.read(path, BEGIN)


def test_the_checkpoint_of_another_model_is_refused(tmp_path):
    path = checkpoints.write(tmp_path, STATE)
    with pytest.raises(RunFolderError, match="not those of the configured model"):
        checkpoints.read(path, replace(BEGIN, tensors={"b": torch.zeros(3, 2), "a": torch.zeros(())}))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_changed_byte_is_noticed_and_nothing_else_is_raised(tmp_path_factory, data):
    path = checkpoints.write(tmp_path_factory.getbasetemp() / "bytes", STATE)
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with suppress(RunFolderError):
        same(checkpoints.read(path, BEGIN), STATE)  # a blank in the header that means nothing


def test_a_small_file_that_claims_to_be_huge_takes_no_memory(tmp_path):
    header = json.dumps(
        {"model:b": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}
    ).encode()
    path = tmp_path / "round-0000001.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(RunFolderError, match="cannot read the checkpoint"):
        checkpoints.read(path, BEGIN)


def test_a_full_disk_is_said_and_the_checkpoint_before_stays(tmp_path):
    checkpoints.write(tmp_path, STATE)
    large = replace(STATE, round=8, tensors={**STATE.tensors, "b": torch.zeros(50_000)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # like a disk with so much room
    try:
        with pytest.raises(
            RunFolderError, match=r"cannot write the checkpoint .*; the one before it is kept"
        ):
            checkpoints.write(tmp_path, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["round-0000007.safetensors"]
    same(checkpoints.read_last(tmp_path, BEGIN), STATE)
