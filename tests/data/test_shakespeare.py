"""Plays in the layout of 1994: roles, windows, and a split that does not leak."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.data import DataOptions, load, share_out
from heroes.data.plays import roles
from heroes.data.shakespeare import VOCABULARY, WINDOW, encode, split, window_count
from heroes.errors import DataError

CPU = torch.device("cpu")


@pytest.fixture
def text_file(tmp_path, works):
    path = tmp_path / "100.txt"
    path.write_text(works)
    return path


def test_roles_are_those_who_speak_in_plays_of_more_than_one(works):
    found = {role.name: role.text for role in roles(works)}
    assert list(found) == [
        "A_SMALL_PLAY_ANNA",
        "A_SMALL_PLAY_BEN",
        "THE_COMEDY_OF_ERRORS_DUKE",
        "THE_COMEDY_OF_ERRORS_LUCE",
    ]
    anna = found["A_SMALL_PLAY_ANNA"]
    assert anna.startswith("Bread rises while the oven burns, and so do I; Bread")
    # a stage direction far to the right counts as more, as in LEAF
    assert anna.endswith("to the end. Enter BEN What? [Exit] ")
    assert "  " not in anna
    assert found["THE_COMEDY_OF_ERRORS_DUKE"].endswith("and a third line, flush left. ")
    assert "NOTICE" not in "".join(found.values())


def test_the_vocabulary_has_80_places_and_what_is_not_in_it_is_a_blank():
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 80
    assert "".join(sorted(VOCABULARY)) == VOCABULARY
    assert encode("\n }z€").tolist() == [0, 1, 79, 78, 1]


def test_windows_are_cut_from_the_text_and_the_target_is_the_next_character(text_file, works):
    data = load("shakespeare", DataOptions(source=text_file))
    by_role = {role.name: role.text for role in roles(works)}
    for n in (0, 5, len(data.train) - 1):
        inputs, target = data.train.batch(np.array([n]), CPU)
        said = "".join(VOCABULARY[code] for code in inputs[0])
        role = by_role[data.owner_names[data.owners[n]]]
        assert inputs.shape == (1, WINDOW)
        assert inputs.dtype == torch.int64
        assert said + VOCABULARY[target[0]] in role
    assert data.train.inputs.element_size() * len(data.train) < 5 * len(data.train)  # positions, not copies


def test_no_position_of_a_test_window_is_shown_in_training(text_file):
    data = load("shakespeare", DataOptions(source=text_file))
    shown = {int(s) + k for s in data.train.inputs for k in range(WINDOW)}
    guessed = {int(s) + WINDOW for s in data.train.inputs}
    tested = {int(s) + k for s in data.test.inputs for k in range(WINDOW)}
    to_guess = {int(s) + WINDOW for s in data.test.inputs}
    assert not shown & tested
    assert not (shown | guessed) & to_guess


@given(st.integers(0, 5000))
def test_a_role_is_split_nine_to_one_with_a_gap(windows):
    trained, first, end = split(windows)
    assert 0 <= trained <= first <= end == windows
    assert trained == 0 or abs(trained - 0.9 * windows) <= 1
    assert first == end or first - trained == 79


def test_every_window_is_used_but_those_in_the_gap(text_file, works):
    data = load("shakespeare", DataOptions(source=text_file))
    sizes = [window_count(role) for role in roles(works)]
    assert len(data.train) == sum(split(size)[0] for size in sizes)
    assert len(data.test) == sum(split(size)[2] - split(size)[1] for size in sizes)
    assert np.bincount(data.owners).tolist() == [split(size)[0] for size in sizes]


def test_gzipped_or_in_a_folder_or_with_a_mark_or_in_latin1(tmp_path, text_file, works):
    wanted = load("shakespeare", DataOptions(source=text_file))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a-readme.txt").write_text("not it")
    for name, raw in (
        ("pg.txt.gz", gzip.compress(b"\xef\xbb\xbf" + works.encode())),
        ("pg.txt.gz", gzip.compress(works.replace("Nobody", "N\xf6body").encode("latin-1"))),
        ("pg.txt.gz", gzip.compress(works.replace("\n", "\r\n").encode())),
    ):
        (folder / name).write_bytes(raw)
        found = load("shakespeare", DataOptions(source=folder))
        assert torch.equal(found.train.transform.text, wanted.train.transform.text)


def test_short_roles_are_left_out_and_some_of_the_rest_drawn_by_the_seed(text_file, works):
    longest = max(window_count(role) for role in roles(works))
    assert load("shakespeare", DataOptions(source=text_file, minimum_windows=longest)).owner_names == (
        "A_SMALL_PLAY_ANNA",
    )
    drawn = {
        load("shakespeare", DataOptions(source=text_file, roles=2, seed=seed)).owner_names
        for seed in range(8)
    }
    assert len(drawn) > 1
    one, same = (load("shakespeare", DataOptions(source=text_file, roles=2, seed=5)) for _ in range(2))
    assert one.owner_names == same.owner_names
    assert set(one.owners) == {0, 1}
    shares = share_out("natural", one.train.targets.numpy(), 2, np.random.default_rng(0), owners=one.owners)
    assert len(shares[0]) + len(shares[1]) == len(one.train)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"minimum_windows": 10**6}, "no role of the 4 in the text has 1000000 windows"),
        ({"roles": 5}, "5 roles were asked for, but 4 have 1"),
        ({"roles": 0}, "0 roles were asked for"),
    ],
)
def test_wishes_that_cannot_be_met_say_so(text_file, changes, text):
    with pytest.raises(DataError, match=text):
        load("shakespeare", DataOptions(source=text_file, **changes))


def test_other_texts_are_refused(tmp_path):
    (tmp_path / "x.txt").write_text("To be or not to be, by William Shakespeare")
    with pytest.raises(DataError, match="does not hold the complete works"):
        load("shakespeare", DataOptions(source=tmp_path / "x.txt"))
    (tmp_path / "y.txt.gz").write_bytes(b"\x1f\x8bnot gzip")
    with pytest.raises(DataError, match="cannot be read"):
        load("shakespeare", DataOptions(source=tmp_path / "y.txt.gz"))
