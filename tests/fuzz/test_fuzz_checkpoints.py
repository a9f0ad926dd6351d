"""Any checkpoint is read or refused by a HeroesError, also one whose digest is right."""

from __future__ import annotations

import json
from contextlib import suppress

import fuzz_targets
import pytest
import torch
from fuzz_targets import BEGIN, file_of
from fuzzing import little_memory, mutated_bytes, mutated_tree
from hypothesis import strategies as st
from safetensors.torch import save

from heroes.errors import HeroesError, RunFolderError
from heroes.messages import ServerState
from heroes.planning.pacing import Estimates
from heroes.runs import checkpoints, contents
from heroes.strategies.heroes import HeroesMemory

STATE = ServerState(
    7,
    {"b": torch.ones(2, 3), "a": torch.tensor(0.1)},
    HeroesMemory((3, 1, 0, 2), Estimates(0.1, 0.2, None, float("inf")), 0.7, 1e-30),
    residuals={9: {"b": torch.ones(2, 3)}, 2: {"a": torch.tensor(0.3)}},
    measured={3: (1e9, 2.5, 1e5, 0.0, -1.5)},
    sampler={"seen": {"3": [1, 0.1]}},
    moments={"first": {"b": torch.ones(2, 3)}},
    averaged={"b": torch.ones(2, 3), "a": torch.tensor(0.2)},
)
WHOLE = contents.packed(STATE, {})
LENGTH = int.from_bytes(WHOLE[:8], "little")
HEADER = json.loads(WHOLE[8 : 8 + LENGTH])
VALUES = json.loads(HEADER["__metadata__"]["state"])
KINDS = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.bool,
    torch.uint8,
    torch.float8_e4m3fn,
    torch.complex64,
]
OLD = ("model:a", "model:b", "residual:9:b", "residual:x:b", "residual:9", "residual::", "other", "")
NEW = ("moment:first:b", "moment:first", "moment::", "average:a", "average:")
NAMES = st.sampled_from([*OLD, *NEW])
SHAPES = st.sampled_from([(), (2, 3), (0,), (3, 2), (0, 2**20)])


def sealed(text: str, tensors: dict[str, torch.Tensor]) -> bytes:
    """A checkpoint with a right digest."""
    return save(tensors, metadata={"state": text, "digest": contents.digest(text, tensors)})


def headed(header: object) -> bytes:
    """The checkpoint with another safetensors header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + WHOLE[8 + LENGTH :]


def test_bytes(fuzz):
    fuzz(fuzz_targets.checkpoint_file, mutated_bytes([WHOLE]))


def test_headers(fuzz):
    fuzz(fuzz_targets.checkpoint_file, mutated_tree(HEADER).map(headed))


def right_digest(content):
    text, kinds = content
    tensors = {f"model:{name}": tensor for name, tensor in STATE.tensors.items()} | {
        name: torch.zeros(shape, dtype=kind) for name, kind, shape in kinds
    }
    fuzz_targets.checkpoint_file(sealed(text, tensors))
    with suppress(HeroesError):
        checkpoints.read_last(file_of(b"", "unused").parent, BEGIN)


def test_right_digests(fuzz):
    values = (mutated_tree(VALUES | {"clients": []}) | mutated_tree(VALUES)).map(json.dumps) | st.text(
        max_size=20
    )
    fuzz(
        right_digest,
        st.tuples(values, st.lists(st.tuples(NAMES, st.sampled_from(KINDS), SHAPES), max_size=2)),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "damaged"),
        (json.dumps(VALUES | {"round": float("inf")}), "damaged"),
        (json.dumps(VALUES | {"clients": [float("inf")]}), "damaged"),
        (
            json.dumps(VALUES | {"clients": [], "round": -1}),
            "round is -1: it should be greater than or equal to 0",
        ),
    ],
)
def test_a_description_that_was_found_stays_refused(text, said):
    tensors = {f"model:{name}": tensor for name, tensor in STATE.tensors.items()}
    with pytest.raises(RunFolderError, match=said):
        checkpoints.read(file_of(sealed(text, tensors), "found"), BEGIN)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_tensors_of_another_kind_are_refused(kind):
    tensors = {f"model:{name}": tensor.to(kind) for name, tensor in STATE.tensors.items()}
    content = sealed(json.dumps(VALUES | {"clients": []}), tensors)
    with pytest.raises(RunFolderError, match="not those of the configured model"):
        checkpoints.read(file_of(content, "found"), BEGIN)


@pytest.mark.parametrize("length", [2**20, 2**40, 2**63, 2**64 - 1])
def test_a_small_file_that_claims_a_huge_header_takes_no_memory(length):
    path = file_of(length.to_bytes(8, "little") + b"{}", "found")
    with little_memory(), pytest.raises(RunFolderError, match="cannot read the checkpoint"):
        checkpoints.read(path, BEGIN)
