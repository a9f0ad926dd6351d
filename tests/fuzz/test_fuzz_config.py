"""Any TOML file, tree, setting and change gives a configuration or a HeroesError."""

from __future__ import annotations

from contextlib import suppress

import fuzz_targets
import pytest
from fuzzing import PLAIN, TREES, mutated_bytes, mutated_tree
from hypothesis import strategies as st

from heroes.errors import ConfigError, HeroesError
from heroes.settings.config import Config, keys, parse, parse_setting, to_toml
from heroes.settings.recipes import EXPERIMENTS, recipe
from heroes.settings.toml_files import load
from heroes.settings.toml_text import LARGEST, loads
from heroes.strategies.registry import BUILT_IN

FILES = [to_toml(recipe("digits", strategy)).encode() for strategy in BUILT_IN]
FILES += [
    b'experiment = "mine"\nbase = "digits"\n[fleet]\nupload = [1, 2.5]\n',
    b"base = 'digits'\n[strategy]\nname = []\n[data]\nclasses = [{a.b = 0xff}]\n",
    b'task = 1979-05-27T07:32:00Z\nseed = 0o17\n"a.b" = """x"""\n[[data]]\n',
]
TREE = loads(FILES[0].decode())
NAMES = [name for kind in BUILT_IN.values() for name, *_ in keys(kind)]
VALUES = [
    "",
    "none",
    "[1, 2]",
    "'x'",
    "{a = 1}",
    "0x" + "f" * 5000,
    "1" * 5000,
    "[" * 5000,
    "1e999",
    "nan",
    "\udcff",
    "a\nb = 2",
]


def test_files(fuzz):
    fuzz(fuzz_targets.config_file, mutated_bytes(FILES))


def tree(value):
    with suppress(HeroesError):
        config = parse(value)
        assert to_toml(config).encode()


def test_trees(fuzz):
    fuzz(tree, mutated_tree(TREE).filter(lambda value: isinstance(value, dict)))


def setting(text):
    with suppress(HeroesError):
        key, value = parse_setting(text)
        assert to_toml(Config().changed({key: value})).encode()


def test_settings(fuzz):
    names = st.sampled_from(
        [*NAMES, "data", "a", "strategy.x.y", "data.name.x", ".", "data..name"]
    ) | st.text(max_size=9)
    values = st.sampled_from(VALUES) | PLAIN.map(repr) | st.text(max_size=20)
    fuzz(setting, st.builds("{}={}".format, names, values) | st.text(max_size=30))


def changes(wanted):
    with suppress(HeroesError):
        assert to_toml(Config().changed(wanted)).encode()


def test_changes(fuzz):
    fuzz(
        changes,
        st.dictionaries(
            st.sampled_from([*NAMES, "data", "strategy"]) | st.text(max_size=9), TREES, max_size=4
        ),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = " + "1" * 5000, "4300"),
        ("seed = 0x" + "f" * 5000, "64 bits"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("data.name." + "a." * 200 + "a = 1", "nested too deeply"),
        ("a." * LARGEST + "a = 1", "longer than 32768 bytes"),
        ("strategy.name = []", r"strategy\.name is \[\]"),
        ("task = [1]", r"unknown experiment \[1\]"),
        ("base = [1]", r"base is \[1\]"),
        ("base = 'digits'\nexperiment = [1]", r"experiment is \[1\]"),
        ("data.adp = 1", r"unknown key 'data\.adp'"),
        ("heroes = 1", "unknown key 'heroes'"),
        ('"data.name" = 1', r"unknown key 'data\.name'"),
    ],
)
def test_what_was_found_stays_refused(tmp_path, text, said):
    (tmp_path / "c.toml").write_text(
        text if text.startswith(("task", "base")) else f"experiment = 'digits'\n{text}"
    )
    with pytest.raises(ConfigError, match=said):
        load(tmp_path / "c.toml", EXPERIMENTS)


def test_a_tree_with_a_dotted_key_and_text_that_cannot_be_written_are_named():
    with pytest.raises(ConfigError, match=r"unknown key 'data\.name'"):
        parse({"data.name": 1})
    with pytest.raises(ConfigError, match="it should be a valid string"):
        parse({"\ud800": 1})
    with pytest.raises(ConfigError, match=r"data\.source is '\\udcff': it should be text"):
        Config().changed({"data.source": "\udcff"})
