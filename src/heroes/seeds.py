"""One seed, many independent streams. All randomness of a run comes from here, keyed by what it is for.

A stream depends on the run's seed and its own name only, never on what was drawn before, so any round can be
replayed alone.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np


def _key(seed: int, names: tuple[str | int, ...]) -> int:
    text = json.dumps([int(seed), *(name if isinstance(name, str) else int(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The numpy generator called `names`: `stream(7, "sampling", 900)` picks the clients of round 900."""
    return np.random.Generator(np.random.PCG64(_key(seed, names)))


def number(seed: int, *names: str | int) -> int:
    """A 63-bit seed called `names`, for generators that live elsewhere (torch, a client)."""
    return _key(seed, names) >> 65


def client(seed: int, round_number: int, client_id: int) -> int:
    """The seed a client gets with its task: it shuffles, augments, drops out and rounds from it."""
    return number(seed, "client", round_number, client_id)
