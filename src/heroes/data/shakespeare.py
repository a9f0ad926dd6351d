"""LEAF's Shakespeare: 80 characters in, the next one out; a client is a speaking role.

The text is kept once, as bytes; an example is a position in it, and its window of 80 characters is cut out on
the fly.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heroes import seeds
from heroes.data.datasets import DataOptions, Dataset
from heroes.data.examples import Bytes, Examples
from heroes.data.plays import BYLINE, Role, roles
from heroes.errors import DataError

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80
_PLACES = np.array(
    [VOCABULARY.index(chr(c) if chr(c) in VOCABULARY else " ") for c in range(128)], dtype=np.uint8
)
_TEST_SHARE = 10  # one window in ten
_LARGEST = 100_000_000  # characters of text; the complete works have 5.5 million


@dataclass(frozen=True)
class Windows:
    """Turns positions in the text into windows of character codes: (N,) to (N, 80)."""

    text: Tensor

    def __call__(self, starts: Tensor, rng: np.random.Generator | None) -> Tensor:
        return self.text[starts.long()[:, None] + torch.arange(WINDOW)].long()


def load(options: DataOptions) -> Dataset:
    """Shakespeare as LEAF has it: predict the next character of a play; natural split by speaking role."""
    chosen = _choose(roles(_works(options.root("shakespeare"))), options)
    codes = [encode(role.text) for role in chosen]
    text = torch.from_numpy(np.concatenate(codes))
    begins = np.concatenate([[0], np.cumsum([len(code) for code in codes])])[:-1]
    splits = [split(window_count(role)) for role in chosen]
    train = [
        np.arange(begin, begin + trained, dtype=np.int32)
        for begin, (trained, _, _) in zip(begins, splits, strict=True)
    ]
    test = [
        np.arange(begin + first, begin + end, dtype=np.int32)
        for begin, (_, first, end) in zip(begins, splits, strict=True)
    ]
    if not sum(map(len, test)):
        raise DataError(
            "the roles kept are too short to test on; raise the minimum of windows or keep more roles"
        )
    owners = np.repeat(np.arange(len(chosen)), [len(part) for part in train])
    return Dataset(
        _examples(text, train),
        _examples(text, test),
        owners,
        tuple(VOCABULARY),
        tuple(role.name for role in chosen),
    )


def window_count(role: Role) -> int:
    """How many windows with a next character the role's text has."""
    return max(0, len(role.text) - WINDOW)


def split(windows: int) -> tuple[int, int, int]:
    """Training windows `0 .. a` (the first nine tenths), a gap, then test windows `b .. c`, as (a, b, c).

    The gap is 79 windows: no character of a training window is in a test window, and none to guess was seen.

    >>> split(1000)
    (900, 979, 1000)
    """
    trained = max(1, windows - windows // _TEST_SHARE) if windows else 0
    return trained, min(trained + WINDOW - 1, windows), windows


def encode(text: str) -> Bytes:
    """Every character as its place in the vocabulary; one that is not in it becomes a blank."""
    characters = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    codes: Bytes = _PLACES[np.minimum(characters, len(_PLACES) - 1)]
    return codes


def _choose(every: list[Role], options: DataOptions) -> list[Role]:
    """The roles that are long enough, and of these as many as asked for, in the order of the text."""
    least = max(1, options.minimum_windows)
    able = [role for role in every if window_count(role) >= least]
    if not able:
        raise DataError(
            f"no role of the {len(every)} in the text has {least} windows of {WINDOW} characters or more"
        )
    if options.roles is None:
        return able
    if not 1 <= options.roles <= len(able):
        raise DataError(f"{options.roles} roles were asked for, but {len(able)} have {least} windows or more")
    rng = seeds.stream(options.seed, "shakespeare", "roles")
    return [able[i] for i in np.sort(rng.choice(len(able), options.roles, replace=False))]


def _examples(text: Tensor, parts: list[npt.NDArray[np.int32]]) -> Examples:
    starts = torch.from_numpy(np.concatenate(parts))
    return Examples(starts, text[starts + WINDOW], Windows(text))


def _works(root: Path) -> str:
    """The text of the complete works: the file given, or the one in the folder."""
    for path in [root] if root.is_file() else sorted(p for p in root.rglob("*.txt*") if p.is_file()):
        text = _text(path)
        if text.count(BYLINE) > 1:
            return text
    raise DataError(
        f"{root} does not hold the complete works as Project Gutenberg published them in 1994 (#100, a .txt "
        f"or .txt.gz file): a play starts at the line {BYLINE!r}"
    )


def _text(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(raw) > _LARGEST:
        raise DataError(f"{path} has more than {_LARGEST} characters; the complete works have 5.5 million")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
