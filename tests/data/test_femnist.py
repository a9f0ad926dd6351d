"""LEAF's FEMNIST from its JSON files, and CIFAR-100 from its pickles."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from heroes.data import DataOptions, load, verify
from heroes.errors import DataError


def write(path: Path, writers: dict[str, int], seed: int = 0) -> dict[str, dict[str, list]]:
    rng = np.random.default_rng(seed)
    data = {
        name: {
            "x": (rng.integers(0, 256, (count, 784)) / 255).tolist(),
            "y": rng.integers(0, 62, count).tolist(),
        }
        for name, count in writers.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    tree = {"users": list(data), "num_samples": list(writers.values()), "user_data": data}
    path.write_text(json.dumps(tree))
    return data


def test_everyones_last_part_is_to_test_on_and_a_client_is_a_writer(tmp_path):
    one = write(tmp_path / "all_data" / "all_data_0.json", {"f0001_41": 10, "f0002_12": 5})
    write(tmp_path / "all_data" / "all_data_1.json", {"f0003_01": 10}, seed=1)
    data = load("femnist", DataOptions(source=tmp_path))
    assert data.train.inputs.shape == (20, 1, 28, 28)
    assert data.owners.tolist() == [0] * 8 + [1] * 4 + [2] * 8
    assert data.owner_names == ("f0001_41", "f0002_12", "f0003_01")
    pixels = np.rint(np.array(one["f0001_41"]["x"]) * 255)
    assert np.array_equal(data.train.inputs[:8].flatten(1).numpy(), pixels[:8])
    assert data.train.targets[:8].tolist() == one["f0001_41"]["y"][:8]
    assert np.array_equal(data.test.inputs[:2].flatten(1).numpy(), pixels[8:])
    assert (len(data.class_names), data.class_names[36]) == (62, "a")
    inputs, _ = data.train.batch(np.arange(20), torch.device("cpu"))
    assert (inputs.mean().item(), inputs.std(correction=0).item()) == pytest.approx((0, 1), abs=1e-4)


def of_one(found: object) -> str:
    return json.dumps({"users": ["u"], "user_data": {"u": found}})


def test_leafs_own_split_is_kept(tmp_path):
    write(tmp_path / "data" / "train" / "a.json", {"u": 4, "nobody": 0})
    write(tmp_path / "data" / "test" / "a.json", {"u": 2})
    data = load("femnist", DataOptions(source=tmp_path))
    assert (len(data.train), len(data.test), data.owner_names) == (4, 2, ("u",))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not one of LEAF's JSON files"),
        ("[]", "has no 'users' and 'user_data'"),
        ('{"users": ["u"], "user_data": {}}', "user_data of 'u' is wrong: it needs x and y"),
        (of_one({"x": [[1]], "y": [0]}), "x must be rows of 784 numbers"),
        (of_one({"x": [[2] * 784], "y": [0]}), "x must be from 0 to 1"),
        (of_one({"x": [[0] * 784], "y": [62]}), "y must be from 0 to 61"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path, content, says):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=says):
        load("femnist", DataOptions(source=tmp_path))


def test_a_folder_without_files_says_what_should_be_there(tmp_path):
    with pytest.raises(DataError, match=r"there must be LEAF's files all_data/\*\.json"):
        load("femnist", DataOptions(source=tmp_path))


@pytest.fixture
def cifar100(tmp_path: Path) -> Path:
    folder, rng = tmp_path / "cifar100" / "cifar-100-python", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, count in (("train", 30), ("test", 10)):
        tree = {
            b"fine_labels": rng.integers(0, 100, count).tolist(),
            b"coarse_labels": rng.integers(0, 20, count).tolist(),
            b"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
        }
        (folder / name).write_bytes(pickle.dumps(tree, protocol=2))
    return folder


def test_cifar100_has_its_fine_labels(cifar100):
    data = load("cifar100", DataOptions(directory=cifar100.parents[1]))
    first = pickle.loads((cifar100 / "train").read_bytes(), encoding="bytes")  # noqa: S301
    assert data.train.targets.tolist() == first[b"fine_labels"]
    assert np.array_equal(data.train.inputs.flatten(1).numpy(), first[b"data"])
    assert (len(data.test), len(data.class_names), data.class_names[99]) == (10, 100, "worm")
    assert verify("cifar100", cifar100.parents[1]).state == "ok"


def test_a_cifar100_that_is_none_is_refused(cifar100):
    (cifar100 / "test").write_bytes(pickle.dumps({b"data": 1}, protocol=2))
    with pytest.raises(DataError, match="is not a CIFAR-100 batch"):
        load("cifar100", DataOptions(source=cifar100))
    (cifar100 / "train").unlink()
    with pytest.raises(DataError, match="a folder cifar-100-python with the files train and test"):
        load("cifar100", DataOptions(source=cifar100))
