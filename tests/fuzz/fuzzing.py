"""What the fuzz tests share: valid inputs made wrong, byte by byte or part by part, and bounds on memory."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

WORDS = (
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
HOSTILE = (-1, -(2**63), 10**30, 10**400, 0.0, -0.0, 1e-320, 1e308, float("inf"), float("nan"), 0.5, *WORDS)
TEXTS = (
    "",
    "x",
    "none",
    "auto",
    "name",
    "heroes",
    "fedavg",
    "a.b",
    "data.name",
    "\0",
    "é",
    "\ud800",
    "1",
    "1e999",
    "x" * 300,
)
NUMBERS = st.sampled_from(HOSTILE)
PLAIN = st.none() | st.booleans() | NUMBERS | st.integers() | st.floats() | st.text(max_size=8)
TREES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
_SEEDS = st.integers(0, 2**64 - 1)


def mutated_bytes(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of the seeds with up to five edits; sometimes plain noise. hypothesis draws a number, the edits
    follow from it.
    """

    def made(number: int) -> bytes:
        rng = Random(number)
        if rng.randrange(16) == 0:
            return rng.randbytes(rng.randrange(200))
        content = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(6)):
            _edit(rng, content, seeds)
        return bytes(content)

    return _SEEDS.map(made)


def _edit(rng: Random, content: bytearray, seeds: Sequence[bytes]) -> None:
    where = rng.randint(0, len(content))
    kind = rng.choice(("byte", "word", "word", "cut", "insert", "copy", "splice", "end"))
    if kind == "byte" and where < len(content):
        content[where] = rng.randrange(256)
    elif kind == "word":
        size = rng.choice((1, 2, 4, 8))
        content[where : where + size] = (rng.choice(WORDS) % 256**size).to_bytes(
            size, rng.choice(("big", "little"))
        )
    elif kind == "cut":
        del content[where : where + rng.randint(1, 40)]
    elif kind == "insert":
        content[where:where] = rng.randbytes(rng.randrange(12))
    elif kind == "copy":
        content[where:where] = content[where : where + rng.randint(1, 200)] * rng.randint(1, 4)
    elif kind == "splice":
        other = rng.choice(seeds)
        content[where:] = other[rng.randint(0, len(other)) :]
    elif kind == "end":
        del content[where:]


def mutated_tree(tree: Any, most: int = 3) -> st.SearchStrategy[Any]:
    """A tree of dictionaries and lists with some of its parts replaced, removed, renamed or doubled."""

    def made(number: int) -> Any:
        rng = Random(number)
        changed = deepcopy(tree)
        for _ in range(rng.randint(0, most)):
            changed = _change(rng, changed)
        return changed

    return _SEEDS.map(made)


def _change(rng: Random, tree: Any) -> Any:
    if not isinstance(tree, dict | list) or not tree or rng.randrange(25) == 0:
        return _anything(rng)
    key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    kind = rng.choice(("inside", "inside", "replace", "remove", "rename", "add"))
    if kind in ("inside", "replace"):
        tree[key] = _change(rng, tree[key]) if kind == "inside" else _anything(rng)
    elif kind == "remove":
        del tree[key]
    elif isinstance(tree, list):
        tree.insert(key, deepcopy(rng.choice(tree)))
    else:
        tree[rng.choice(TEXTS)] = tree.pop(key) if kind == "rename" else _anything(rng)
    return tree


def _anything(rng: Random, depth: int = 2) -> Any:
    kind = rng.randrange(8)
    if depth and kind == 0:
        return [_anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    if depth and kind == 1:
        return {rng.choice(TEXTS): _anything(rng, depth - 1) for _ in range(rng.randrange(4))}
    return rng.choice((None, True, False, *HOSTILE)) if kind < 6 else rng.choice(TEXTS)


@contextmanager
def address_space(extra: int = 2**30) -> Iterator[None]:
    """Inside, the process may take only so many bytes more than it has: what would take more fails."""
    if sys.platform != "linux":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def little_memory(most: int = 40_000_000) -> Iterator[None]:
    """Inside, Python and numpy take at most so many bytes at a time."""
    tracemalloc.start()
    try:
        with address_space():
            yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most, f"it took {peak} bytes"
