"""Data sets of the hub: what is said without the package, and what `save_to_disk` wrote is read."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from heroes.data import DataOptions, load
from heroes.errors import DataError


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"needs the package datasets; pip install 'heroes-fl\[hf\]'"):
        load("hf:beans")


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets", reason="the hub needs the extra heroes-fl[hf]")


@pytest.mark.slow
def test_without_a_network_it_says_what_to_download_and_how(datasets, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"load_dataset\('nobody/nothing', 'small'\)\.save_to_disk\('DIR'\)"):
        load("hf:nobody/nothing:small")


@pytest.mark.slow
def test_texts_tables_and_images_from_a_folder(datasets, tmp_path):
    from PIL import Image

    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    rows = {"text": ["dull", "fine"] * 10, "label": [0, 1] * 10}
    train = datasets.Dataset.from_dict(rows, features=features)
    unlabelled = datasets.Dataset.from_dict({"text": ["x"], "label": [-1]}, features=features)
    parts = {"train": train, "test": unlabelled, "validation": train.select([1, 0])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "texts")
    data = load("hf:reviews", DataOptions(source=tmp_path / "texts", length=8))
    assert (data.class_names, data.train.targets[:3].tolist()) == (("bad", "good"), [0, 1, 0])
    assert data.test.targets.tolist() == [1, 0]  # the part whose labels are known
    assert data.train.inputs[0].tolist() == [0] * 4 + [byte + 1 for byte in b"dull"]

    datasets.Dataset.from_dict({"x": [1.0, 3.0] * 10, "y": ["a", "b"] * 10}).save_to_disk(tmp_path / "table")
    data = load("hf:t", DataOptions(source=tmp_path / "table", target="y"))
    assert sorted(set(data.train.inputs[:, 0].tolist())) == [-1.0, 1.0]
    assert len(data.test) == 4

    pictures = [Image.new("RGB", (9, 5), (n, 0, 0)) for n in range(10)]
    features = datasets.Features({"image": datasets.Image(), "kind": datasets.ClassLabel(names=["a", "b"])})
    made = datasets.Dataset.from_dict({"image": pictures, "kind": [0, 1] * 5}, features=features)
    made.save_to_disk(tmp_path / "images")
    data = load("hf:i", DataOptions(source=tmp_path / "images", size=4, augment=False))
    shown = np.sort(np.concatenate([part.inputs[:, 0, 0, 0].numpy() for part in (data.train, data.test)]))
    assert shown.tolist() == list(range(10))
    assert (data.train.inputs[:, 0, 0, 0] % 2 == data.train.targets).all()
