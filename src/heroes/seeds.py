"""One seed, many independent streams. All randomness of a run comes from here, keyed by what it is for.

A stream depends on the run's seed and its own name only, never on what was drawn before, so any round can be
replayed alone. Whoever must not know the seed is given the keys of single streams instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from heroes.errors import ConfigError

Names = tuple[str | int, ...]


@dataclass(frozen=True)
class Keys:
    """Some streams of a seed, by name, to give away: neither the seed nor other streams follow from them."""

    known: Mapping[str, str]

    @classmethod
    def of(cls, seed: int, streams: Iterable[Names]) -> Keys:
        """The keys of these streams."""
        return cls({_text(names): f"{_key(seed, names):032x}" for names in streams})


Seed = int | Keys


def _text(names: Names) -> str:
    return " ".join(map(str, names))


def _key(seed: Seed, names: Names) -> int:
    if isinstance(seed, Keys):
        if (known := seed.known.get(_text(names))) is None:
            raise ConfigError(
                f"the server sent no key for the stream {_text(names)!r}; it is of another version"
            )
        return int(known, 16)
    text = json.dumps([int(seed), *(name if isinstance(name, str) else int(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def stream(seed: Seed, *names: str | int) -> np.random.Generator:
    """The numpy generator called `names`: `stream(7, "sampling", 900)` picks the clients of round 900."""
    return np.random.Generator(np.random.PCG64(_key(seed, names)))


def number(seed: Seed, *names: str | int) -> int:
    """A 63-bit seed called `names`, for generators that live elsewhere (torch, a client)."""
    return _key(seed, names) >> 65


def client(seed: int, round_number: int, client_id: int) -> int:
    """The seed a client gets with its task: it shuffles, augments, drops out and rounds from it."""
    return number(seed, "client", round_number, client_id)
