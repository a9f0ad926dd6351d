"""Folders of images: every kind of colour, broken ones, the cache and its interruptions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from heroes.data import DataOptions, load, verify
from heroes.data.image_cache import cached
from heroes.errors import DataError

COLOURS = {"ant": (200, 30, 10), "bee": (20, 180, 40), "cow": (10, 40, 220)}


def picture(colour, mode="RGB", size=(40, 30)):
    return Image.new("RGB", size, colour).convert(mode)


@pytest.fixture
def folder(tmp_path):
    """Three classes, four training images and two for testing each."""
    for split, count in (("train", 4), ("val", 2)):
        for name, colour in COLOURS.items():
            place = tmp_path / "images" / split / name
            place.mkdir(parents=True)
            for n in range(count):
                picture(colour).save(place / f"{n}.JPEG", quality=95)
    return tmp_path / "images"


@pytest.fixture
def options(folder, tmp_path):
    return DataOptions(source=folder, directory=tmp_path / "data", size=16, augment=False)


def test_images_become_bytes_of_the_size_asked_for(folder, options):
    data = load("imagenet100", options)
    assert data.train.inputs.shape == (12, 3, 16, 16)
    assert data.test.inputs.shape == (6, 3, 16, 16)
    assert data.train.inputs.dtype == torch.uint8
    assert data.class_names == ("ant", "bee", "cow")
    assert data.train.targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    middle = data.train.inputs[:, :, 8, 8].int()
    wanted = torch.tensor([COLOURS[name] for name in data.class_names for _ in range(4)])
    assert (middle - wanted).abs().max() <= 4
    inputs, _ = data.train.batch(np.array([5]), torch.device("cpu"))
    assert inputs[0, 1, 8, 8].item() == pytest.approx((int(middle[5, 1]) / 255 - 0.456) / 0.224, abs=1e-5)


def test_training_images_are_flipped_by_the_generator(folder, options):
    half = Image.new("RGB", (16, 16))
    half.paste((255, 255, 255), (0, 0, 8, 16))
    half.save(folder / "train" / "ant" / "+half.png")
    data = load("imagenet100", DataOptions(source=folder, directory=options.directory, size=16))
    inputs, _ = data.train.batch(np.zeros(40, dtype=np.int64), torch.device("cpu"), np.random.default_rng(0))
    bright_left = (inputs[:, 0, 8, 2] > inputs[:, 0, 8, 13]).sum().item()
    assert 8 < bright_left < 32


@pytest.mark.parametrize(
    ("mode", "name"),
    [("L", "g.jpg"), ("CMYK", "c.jpg"), ("1", "b.png"), ("P", "p.gif"), ("RGBA", "a.png"), ("LA", "la.png")],
)
def test_other_colours_become_red_green_and_blue(folder, options, mode, name):
    picture((120, 120, 120), mode).save(folder / "val" / "bee" / f"zz-{name}")
    data = load("imagenet100", options)
    row = data.test.inputs[4]  # the last bee
    assert row.shape == (3, 16, 16)
    assert data.skipped == ()
    if mode not in ("1", "P"):
        assert (row.int() - 120).abs().max() <= 6


def test_a_broken_image_is_named_skipped_and_counted(folder, options):
    good = folder / "train" / "bee" / "0.JPEG"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(good)
    good.write_bytes(good.read_bytes()[:1500])  # cut off
    (folder / "train" / "cow" / "3.JPEG").write_bytes(b"no image at all")
    (folder / "val" / "ant" / "0.JPEG").write_bytes(b"")
    (folder / "train" / "ant" / "notes.txt").write_text("not an image, and no error")
    for _ in range(2):  # when made, and from the cache
        data = load("imagenet100", options)
        assert data.train.targets.tolist() == [0] * 4 + [1] * 3 + [2] * 3
        assert len(data.skipped) == 3
        assert ["0.JPEG" in data.skipped[0], "3.JPEG" in data.skipped[1], "truncated" in data.skipped[0]] == [
            True
        ] * 3
        assert (data.train.inputs[-1, 2, 8, 8].int() - 220).abs() <= 4  # rows have moved up
    verdict = verify("imagenet100", source=folder)
    assert verdict.state == "broken"
    assert "of which 3 cannot be read" in verdict.detail


def test_only_broken_images_are_an_error(folder, options):
    for path in (folder / "val").rglob("*.JPEG"):
        path.write_bytes(b"broken")
    with pytest.raises(DataError, match="not one of 6 images could be read"):
        load("imagenet100", options)


def test_decoding_happens_once_and_again_when_the_files_change(folder, options, tmp_path):
    told = []
    told_options = DataOptions(
        source=folder, directory=options.directory, size=16, progress=lambda *step: told.append(step)
    )
    first = load("imagenet100", told_options)
    assert told == [("decoding images", 12, 12), ("decoding images", 6, 6)]
    again = load("imagenet100", told_options)
    assert len(told) == 2
    assert torch.equal(first.train.inputs, again.train.inputs)
    picture((1, 2, 3)).save(folder / "train" / "ant" / "new.png")
    assert len(load("imagenet100", told_options).train) == 13
    load("imagenet100", DataOptions(source=folder, directory=options.directory, size=8))
    assert len(list((tmp_path / "data" / "cache").iterdir())) == 5


def test_an_interrupted_cache_goes_on_where_it_stopped(folder, tmp_path):
    files = sorted((folder / "train").rglob("*.JPEG"))
    files[1].write_bytes(b"broken")
    whole = cached(tmp_path / "whole", files, 16)

    def interrupted(what, done, total):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path / "half", files, 16, interrupted, chunk=4)
    assert not (tmp_path / "half" / "index.json").exists()
    for path in files[:8]:
        path.unlink()  # what is marked as done is not looked at again
    told = []
    found = cached(tmp_path / "half", files, 16, lambda *step: told.append(step), chunk=4)
    assert told == [("decoding images", 12, 12)]
    assert np.array_equal(found.images, whole.images)
    assert found.kept == whole.kept == (0, *range(2, 12))
    assert found.skipped == whole.skipped
    assert "UnidentifiedImageError" in found.skipped[0]


def test_pixels_after_the_last_mark_are_written_again(folder, tmp_path):
    """As after a power cut between the pixels and the mark."""
    files = sorted((folder / "train").rglob("*.JPEG"))
    whole = np.array(cached(tmp_path / "c", files, 16, chunk=4).images)
    (tmp_path / "c" / "index.json").unlink()
    states = (tmp_path / "c" / "states").read_bytes()
    (tmp_path / "c" / "states").write_bytes(states[:4])
    with (tmp_path / "c" / "images").open("r+b") as file:
        file.seek(5 * 3 * 16 * 16)
        file.write(bytes(3000))
    assert np.array_equal(cached(tmp_path / "c", files, 16, chunk=4).images, whole)


def test_a_damaged_cache_says_so(folder, options, tmp_path):
    load("imagenet100", options)
    (made,) = (tmp_path / "data" / "cache").glob("imagenet100-train-*")
    (made / "images").write_bytes(b"short")
    with pytest.raises(DataError, match=r"is damaged .* delete it"):
        load("imagenet100", options)


def test_classes_are_chosen_by_name_or_the_first_hundred(folder, options, tmp_path):
    chosen = load(
        "imagenet100", DataOptions(source=folder, directory=options.directory, size=8, classes=("cow", "ant"))
    )
    assert chosen.class_names == ("cow", "ant")
    assert chosen.train.targets.tolist() == [0] * 4 + [1] * 4
    with pytest.raises(DataError, match="no class 'bea': did you mean 'bee'"):
        load("imagenet100", DataOptions(source=folder, classes=("bea",)))
    with pytest.raises(DataError, match="each once"):
        load("imagenet100", DataOptions(source=folder, classes=("bee", "bee")))
    many = tmp_path / "many"
    for n in range(103):
        for split in ("train", "val"):
            place = many / split / f"n{n:03}"
            place.mkdir(parents=True)
            picture((n, n, n), size=(2, 2)).save(place / "0.png")
    assert (
        load("imagenet100", DataOptions(source=many, directory=options.directory, size=2)).class_names[-1]
        == "n099"
    )


def test_the_layout_may_lie_one_folder_down_and_anything_else_is_explained(folder, options, tmp_path):
    assert (
        len(
            load("imagenet100", DataOptions(source=folder.parent, directory=options.directory, size=16)).train
        )
        == 12
    )
    with pytest.raises(DataError, match="no folders train and val"):
        load("imagenet100", DataOptions(source=folder / "train"))
    (tmp_path / "x.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match="is a file; unpack it"):
        load("imagenet100", DataOptions(source=tmp_path / "x.tar.gz"))
    with pytest.raises(DataError, match="size is 0"):
        load("imagenet100", DataOptions(source=folder, size=0))
    for name in ("train", "val"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="no class folders"):
        load("imagenet100", DataOptions(source=tmp_path / "empty"))
    (tmp_path / "empty" / "train" / "ant").mkdir()
    with pytest.raises(DataError, match="no images of the 1 classes"):
        load("imagenet100", DataOptions(source=tmp_path / "empty"))


def test_a_folder_of_good_images_is_verified(folder):
    verdict = verify("imagenet100", source=folder)
    assert (verdict.state, verdict.detail) == ("ok", "18 images in 3 classes")
