"""Tables and texts from CSV, JSON lines and Parquet: what becomes of cells, and what is refused and how."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import heroes
from heroes.assemble import at_clients
from heroes.cli.data import plot_command
from heroes.data import DataOptions, Numbers, load
from heroes.data.table_files import read
from heroes.errors import DataError
from heroes.settings.config import Config

PEOPLE = """age,town,id,owner,income
20,Ulm,a,ann,low
40,Bonn,b,ann,high
,Ulm,c,bob,low
60,"Ulm",d,bob,high
40,Kiel,e,bob,low
"""


def options(path: Path, **changes) -> DataOptions:
    return DataOptions(source=path, **({"target": "income", "ignore": ("id",)} | changes))


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    (tmp_path / "test.csv").write_text("age,town,id,owner,income\n50,Paris,x,cy,high\n")
    return path


def test_numbers_are_standardised_and_words_one_hot_by_the_training_rows(people):
    data = load("table", options(people, test=people.with_name("test.csv"), owner="owner"))
    mean, deviation = 40.0, np.sqrt(200.0)  # of 20, 40, 60 and 40
    ages = (np.array([20, 40, 40, 60, 40]) - mean) / deviation
    assert torch.allclose(data.train.inputs[:, 0], torch.tensor(ages, dtype=torch.float32))
    assert data.train.inputs[:, 1].tolist() == [0, 0, 1, 0, 0]  # no age
    assert data.train.inputs[:, 2:].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0]]
    assert data.test.inputs[0].tolist() == pytest.approx([10 / deviation, 0, 0, 0, 0])  # a town never seen
    assert (data.class_names, data.train.targets.tolist()) == (("high", "low"), [1, 0, 1, 0, 1])
    assert (data.owners.tolist(), data.owner_names) == ([0, 0, 1, 1, 1], ("ann", "bob"))


def test_without_a_test_file_a_share_of_every_class_or_the_last_of_every_owner_is_held_out(tmp_path):
    rows = "\n".join(f"{n},{'ab'[n % 2]},{n // 10}" for n in range(40))
    (tmp_path / "t.csv").write_text(f"x,y,who\n{rows}\n")
    data = load("table", options(tmp_path / "t.csv", target="y", ignore=("who",)))
    assert (len(data.train), np.bincount(data.test.targets).tolist()) == (32, [4, 4])
    by_owner = load("table", options(tmp_path / "t.csv", target="y", ignore=(), owner="who"))
    x = by_owner.about["columns"][0]
    held = by_owner.test.inputs[:, 0] * x.deviation + x.mean
    assert held.round().int().tolist() == [8, 9, 18, 19, 28, 29, 38, 39]


def test_a_number_to_predict_is_standardised_and_the_scale_is_told(people):
    aim = {"target": "age", "targets": "numbers", "ignore": ("id", "owner")}
    with pytest.raises(DataError, match=r"line 4 of '.*people\.csv': 'age' is ''; it should be a number"):
        load("table", options(people, **aim))
    people.write_text(PEOPLE.replace("\n,Ulm", "\n40,Ulm"))
    data = load("table", options(people, **aim, test=people.with_name("test.csv")))
    assert data.about["target"] == Numbers(40.0, pytest.approx(np.sqrt(160.0)))
    assert data.train.targets[0].item() == pytest.approx(-20 / np.sqrt(160.0))
    assert data.class_names == ()


def small(**changes) -> dict[str, object]:
    return {
        "federation.clients": 4,
        "federation.cohort": 4,
        "model.max_width": 2,
        "training.probes": 0,
        "engine.name": "in_process",
        **changes,
    }


def test_a_network_learns_a_table_of_classes_and_one_of_numbers(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(50, 20, (300, 2))
    lines = [f"{a:.3f},{b:.3f},{'big' if a + b > 100 else 'small'},{3 * a - b:.2f}" for a, b in x]
    (tmp_path / "t.csv").write_text("a,b,size,sum\n" + "\n".join(lines))
    source = {"data.source": str(tmp_path / "t.csv")}
    config = heroes.recipes.table(rounds=6, strategy="fedavg").changed(
        small(**source, **{"data.target": "size", "data.ignore": ("sum",)})
    )
    assert heroes.run(config).summary().accuracy > 0.85
    aim = {"data.target": "sum", "data.ignore": ("size",), "objective.name": "mean_squared_error"}
    said = []
    run = heroes.run(config.changed(aim), on_progress=lambda what, done, total: said.append(what))
    assert run.records[-1].metric == "rmse"
    assert run.records[-1].score < 0.5  # standard deviations; 1 is what the mean would have
    assert any("targets have mean" in line for line in said)


def test_a_model_for_images_says_which_takes_tables(people):
    config = heroes.recipes.table(strategy="fedavg").changed(
        small(**{"data.source": str(people), "data.target": "income", "model.name": "cnn"})
    )
    with pytest.raises(DataError, match=r"does not take the data \(.*; model\.name = 'mlp' would\)"):
        heroes.run(config.changed({"data.test": str(people)}))


def test_numbers_cannot_be_drawn_as_classes(people):
    people.write_text(PEOPLE.replace("\n,Ulm", "\n40,Ulm"))
    settings = [f"data.source={people}", "data.target=age", "objective.name=mean_squared_error"]
    settings += ["federation.clients=2", "federation.cohort=2"]
    with pytest.raises(DataError, match="table has targets that are no classes: there is nothing to draw"):
        plot_command("table", people.with_name("x"), settings, quiet=True)


def test_json_lines_and_other_separators_are_read_alike(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1, "y": "no"}\n\n{"x": 2.5, "y": "yes", "z": true}\n')
    table = read(tmp_path / "a.jsonl")
    assert table.columns == {"x": [1.0, 2.5], "y": ["no", "yes"], "z": [None, 1.0]}
    assert table.at(1) == f"line 3 of '{tmp_path / 'a.jsonl'}'"
    (tmp_path / "b.csv").write_text("\ufeffx;y\r\n1,5;no\r\n", encoding="utf-8")
    assert read(tmp_path / "b.csv").columns == {"x": ["1,5"], "y": ["no"]}


@pytest.mark.slow
def test_parquet_is_read_alike(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra heroes-fl[tables]")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"x": [1, None, 3], "y": ["no", "yes", "no"]}), path)
    assert read(path).columns == {"x": [1.0, None, 3.0], "y": ["no", "yes", "no"]}
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(path)


def test_parquet_without_its_extra_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"pip install 'heroes-fl\[tables\]'"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "content", "changes", "says"),
    [
        ("a.csv", "", {}, r"'.*a\.csv' is empty; its first line should name the columns"),
        ("a.csv", "x,income\n", {}, r"has no rows, only the columns x, income"),
        ("a.csv", "x,income\n1,a\n2\n", {}, r"line 3 of '.*a\.csv' has 1 cells, but there are 2 columns"),
        ("a.csv", "x,x\n1,a\n", {}, "has 2 columns called 'x'"),
        ("a.csv", 'x,income\n1,"a\n', {}, "is not CSV"),
        ("a.csv", b"x,income\n\xff,a\n", {}, r"is not text in UTF-8 \(byte 9\)"),
        ("a.csv", "x,incom\n1,a\n", {}, "data.target is 'income', but .* did you mean 'incom'?"),
        ("a.csv", "x,income\n1,a\n2,b\n", {"target": None}, r"data\.target is not set: .* has x, income"),
        ("a.csv", "x,income\n1,a\n2,\n", {}, r"line 3 .*: 'income' is empty; give the row a label"),
        ("a.csv", "x,income\n1,a\n2,a\n", {}, "is 'a' in every row; there is nothing to learn"),
        ("a.csv", "income\na\nb\n" * 9, {}, "has no column beside 'income'"),
        ("a.csv", "x,income\n1,a\n2,b\n", {"ignore": ("y",)}, r"data\.ignore is 'y', but"),
        ("a.csv", "x,income\n1,a\n2,b\n", {"owner": "y"}, r"data\.owner is 'y', but"),
        ("a.csv", "x,income\n" + "1,a\n2,b\n" * 9 + "old,a\n", {}, r"line 20 .*: 'x' is 'old', but the"),
        ("a.jsonl", '{"x": 1}\n{"x"', {}, r"line 2 of '.*a\.jsonl' is not JSON"),
        ("a.jsonl", "[1]", {}, "line 1 of .* is a list; it should be an object"),
        ("a.jsonl", '{"x": [1]}', {}, "line 1 of .* has a list in column 'x'"),
        ("a.txt", "x", {}, r"should end in \.csv, \.tsv, \.jsonl, \.parquet"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path, name, content, changes, says):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=says):
        load("table", options(path, **{"ignore": ()} | changes))


def test_more_that_is_wrong_with_tables(tmp_path, people):
    test = people.with_name("test.csv")
    test.write_text("age,town,id,owner,income\n1,a,b,c,high\n1,a,b,c,none\n")
    with pytest.raises(DataError, match=r"line 3 of .*: the label 'none' is not in .* \(high, low\)"):
        load("table", options(people, test=test))
    test.write_text("age,town,id,income\n1,a,b,high\n")
    with pytest.raises(DataError, match="lacks the column 'owner' that"):
        load("table", options(people, test=test))
    many = "\n".join(f"w{n},{n}.5" for n in range(1200))
    (tmp_path / "m.csv").write_text(f"name,y\n{many}")
    with pytest.raises(DataError, match=r"1200 different values in 1200 rows: for numbers to estimate"):
        load("table", options(tmp_path / "m.csv", target="y", ignore=()))
    with pytest.raises(DataError, match=r"different words, .*data\.ignore = \['name'\]"):
        load("table", options(tmp_path / "m.csv", target="y", ignore=(), targets="numbers", test_share=0.1))
    with pytest.raises(DataError, match=r"data\.source is not set: it should be a \.csv"):
        load("table", DataOptions(target="y"))
    with pytest.raises(DataError, match="there is no file"):
        load("table", options(tmp_path / "gone.csv"))
    with pytest.raises(DataError, match=r"has 0 files train\.\*"):
        load("table", options(tmp_path))


def test_a_folder_with_a_file_to_learn_from_and_one_to_test_on(tmp_path, people):
    people.rename(tmp_path / "train.csv")
    data = load("table", options(tmp_path))
    assert (len(data.train), len(data.test)) == (5, 1)


def test_texts_are_bytes_at_the_end_of_their_row(tmp_path):
    rows = [{"text": "ab", "label": 1}, {"text": "é and a long rest", "label": 0}] * 5
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    data = load("text", DataOptions(source=path, length=8))
    first = data.train.batch(np.array([0]), torch.device("cpu"))[0]
    assert first.dtype == torch.int64
    assert first[0].tolist() in ([0] * 6 + [98, 99], [b + 1 for b in "é and a long rest".encode()[:8]])
    assert data.class_names == ("0", "1")
    path.write_text('{"text": "", "label": 1}\n{"text": "x", "label": 0}\n' * 5)
    with pytest.raises(DataError, match=r"'text' is empty; write something"):
        load("text", DataOptions(source=path))
    with pytest.raises(DataError, match=r"data\.text is 'body', but"):
        load("text", DataOptions(source=path, text="body"))


def reviews(path: Path) -> Config:
    rng = np.random.default_rng(0)
    words = {"good": ["fine", "great", "lovely"], "bad": ["poor", "awful", "dull"]}
    lines = [(f"a {rng.choice(words[label])} film", label) for label in ["good", "bad"] * 60]
    path.write_text("text,label\n" + "\n".join(",".join(line) for line in lines))
    return heroes.recipes.text(rounds=4).changed(small(**{"data.source": str(path), "data.length": 16}))


def test_a_network_learns_texts(tmp_path):
    assert heroes.run(reviews(tmp_path / "t.csv")).summary().accuracy > 0.8


def test_the_character_network_takes_texts_too(tmp_path):
    config = reviews(tmp_path / "t.csv").changed({"model.name": "char_rnn"})
    trainer, data = at_clients(config)
    inputs, _ = data.train.batch(np.arange(2), torch.device("cpu"))
    module = trainer.family.module(1)
    assert module.embedding.num_embeddings == 257
    assert module(inputs).shape == (2, 2)
