"""Any folder of images: with a part to test on or without, and what is wrong with one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import heroes
from heroes.data import DataOptions, load
from heroes.errors import DataError, HeroesError

COLOURS = {"ant": (200, 30, 10), "bee": (20, 180, 40), "cow": (10, 40, 220)}


def fill(folder: Path, count: int, names=COLOURS) -> None:
    """Plain pictures of several sizes."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for n in range(count):
            Image.new("RGB", (20 + n, 30), COLOURS[name]).save(folder / name / f"{n}.png")


@pytest.fixture
def options(tmp_path: Path) -> DataOptions:
    return DataOptions(source=tmp_path / "mine", directory=tmp_path / "data", size=8, augment=False)


def test_one_class_is_nothing_to_learn_and_the_folder_below_is_named(options):
    fill(options.source / "photos", 3)
    with pytest.raises(DataError, match=r"has one class, the folder 'photos'.*give .*mine.photos"):
        load("images", options)


def test_folders_by_class_alone_give_a_share_of_every_class_to_test_on(options):
    fill(options.source, 5)
    data = load("images", options)
    assert (len(data.train), len(data.test)) == (12, 3)
    assert sorted(data.test.targets.tolist()) == [0, 1, 2]
    assert data.class_names == ("ant", "bee", "cow")
    assert data.train.inputs.shape == (12, 3, 8, 8)
    again = load("images", replace(options, seed=7))
    assert (again.test.inputs == data.test.inputs).all()
    assert (len(load("images", replace(options, test_share=0.4)).test)) == 6


def test_train_and_test_folders_are_taken_as_they_are(options, tmp_path):
    fill(options.source / "train", 4)
    fill(options.source / "test", 2, ["bee", "cow"])
    data = load("images", options)
    assert data.test.targets.tolist() == [1, 1, 2, 2]
    fill(tmp_path / "elsewhere", 1)
    assert load("images", replace(options, test=tmp_path / "elsewhere")).test.targets.tolist() == [0, 1, 2]
    few = load("images", replace(options, classes=("cow", "bee")))
    assert (few.class_names, few.test.targets.tolist()) == (("cow", "bee"), [0, 0, 1, 1])


def test_images_train_a_model(options):
    fill(options.source, 8)
    config = heroes.recipes.images(rounds=1).changed(
        {
            "data.source": str(options.source),
            "data.directory": str(options.directory),
            "data.size": 8,
            "federation.clients": 3,
            "federation.cohort": 2,
            "model.max_width": 2,
            "training.probes": 0,
            "engine.name": "in_process",
        }
    )
    assert heroes.run(config).summary().rounds == 1


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda root: None, r"is no folder; it should be one with train/<class>/\*"),
        (lambda root: root.mkdir(), "has no class folders"),
        (lambda root: (root / "ant").mkdir(parents=True), "has no images of the 1 classes"),
        (lambda root: fill(root / "train", 1), "has nothing to test on"),
        (lambda root: (fill(root, 1), (root / "dog").mkdir()), r"dog has no images; every class needs some"),
        (
            lambda root: (fill(root / "train", 1, ["ant", "cow"]), fill(root / "test", 1)),
            "has the class 'bee', but",
        ),
        (lambda root: fill(root, 1), r"data\.test_share is 0\.2: of 3 training examples that leaves none"),
    ],
)
def test_a_wrong_folder_is_refused_in_a_sentence(options, made, says):
    made(options.source)
    with pytest.raises(DataError, match=says):
        load("images", options)


def test_a_source_must_be_named():
    with pytest.raises(HeroesError, match=r"data\.source is not set: it should be a folder with"):
        load("images", DataOptions())
