"""What the fuzz tests share: valid inputs made wrong, byte by byte or part by part, and bounds on memory."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

WORDS = (0, 1, 2, 3, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NUMBERS = st.sampled_from((-1, -(2**63), 10**30, 10**400, 0.0, -0.0, 1e-320, 1e308, float("inf"), float("nan"), *WORDS))
PLAIN = st.none() | st.booleans() | NUMBERS | st.integers() | st.floats() | st.text(max_size=8)
TREES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6
)


@st.composite
def mutated_bytes(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with up to five edits; sometimes plain noise."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.binary(max_size=200))
    content = bytearray(draw(st.sampled_from(list(seeds))))
    for _ in range(draw(st.integers(0, 5))):
        _edit(draw, content, seeds)
    return bytes(content)


def _edit(draw: st.DrawFn, content: bytearray, seeds: Sequence[bytes]) -> None:
    where = draw(st.integers(0, len(content)))
    kind = draw(st.sampled_from(("byte", "word", "word", "cut", "insert", "copy", "splice", "end")))
    if kind == "byte" and where < len(content):
        content[where] = draw(st.integers(0, 255))
    elif kind == "word":
        size = draw(st.sampled_from((1, 2, 4, 8)))
        word = draw(st.sampled_from(WORDS)) % 256**size
        content[where : where + size] = word.to_bytes(size, draw(st.sampled_from(("big", "little"))))
    elif kind == "cut":
        del content[where : where + draw(st.integers(1, 40))]
    elif kind == "insert":
        content[where:where] = draw(st.binary(max_size=12))
    elif kind == "copy":
        content[where:where] = content[where : where + draw(st.integers(1, 200))] * draw(st.integers(1, 4))
    elif kind == "splice":
        other = draw(st.sampled_from(list(seeds)))
        content[where:] = other[draw(st.integers(0, len(other))) :]
    elif kind == "end":
        del content[where:]


@st.composite
def mutated_tree(draw: st.DrawFn, tree: Any, most: int = 3) -> Any:
    """A tree of dictionaries and lists with some of its parts replaced, removed, renamed or doubled."""
    changed = deepcopy(tree)
    for _ in range(draw(st.integers(0, most))):
        changed = _change(draw, changed)
    return changed


def _change(draw: st.DrawFn, tree: Any) -> Any:
    if not isinstance(tree, dict | list) or not tree or draw(st.integers(0, 24)) == 0:
        return draw(TREES)
    key = draw(st.sampled_from(sorted(tree, key=repr) if isinstance(tree, dict) else range(len(tree))))
    kind = draw(st.sampled_from(("inside", "inside", "replace", "remove", "rename", "add")))
    if kind in ("inside", "replace"):
        tree[key] = _change(draw, tree[key]) if kind == "inside" else draw(TREES)
    elif kind == "remove":
        del tree[key]
    elif isinstance(tree, list):
        tree.insert(key, deepcopy(draw(st.sampled_from(tree))))
    else:
        tree[draw(st.text(max_size=6))] = tree.pop(key) if kind == "rename" else draw(TREES)
    return tree


@contextmanager
def address_space(extra: int = 2**30) -> Iterator[None]:
    """Inside, the process may not take more than so many bytes beyond what it has: what would, fails instead."""
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
