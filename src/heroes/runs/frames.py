"""The records of a run as pandas frames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from heroes.errors import HeroesError
from heroes.messages import ClientRecord, RoundRecord

NUMBERS = (
    "seconds",
    "duration",
    "waiting",
    "bytes_up",
    "bytes_down",
    "traffic",
    "learning_rate",
    "loss",
    "test_loss",
    "energy",
)
"""what a record says of a whole round in one number each"""
_ROUND = ("round", *NUMBERS)
_MISSING = "frames need pandas; install it with: pip install 'heroes-fl[frames]'"


def by_round(rows: Sequence[RoundRecord]) -> Any:
    """A pandas.DataFrame with one row a round, indexed by it; every metric is a column of its name."""
    metrics = dict.fromkeys(name for row in rows for name in row.scores)
    table = [
        {name: getattr(row, name) for name in _ROUND}
        | {_free(name): row.scores.get(name) for name in metrics}
        | {"clients": len(row.clients), "lost": len(row.missing), "stopped": row.stopped}
        for row in rows
    ]
    columns = [*_ROUND, *map(_free, metrics), "clients", "lost", "stopped"]
    return _pandas().DataFrame(table, columns=columns).set_index("round")


def by_client(rows: Sequence[RoundRecord]) -> Any:
    """A pandas.DataFrame with one row for every client of every round; `lost` is the cause, if it was."""
    names = [field.name for field in fields(ClientRecord)]
    table = []
    for row in rows:
        causes = {each.client: each for each in row.missing}
        for client in row.clients:
            gone = causes.get(client.client)
            told = {"lost": gone and gone.cause, "reason": gone and gone.reason}
            table.append({"round": row.round} | {name: getattr(client, name) for name in names} | told)
    return _pandas().DataFrame(table, columns=["round", *names, "lost", "reason"])


def _free(metric: str) -> str:
    """The column of a metric, which may be called as another column is."""
    return f"metric {metric}" if metric in (*_ROUND, "clients", "lost", "stopped") else metric


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise HeroesError(_MISSING) from None
    return pandas
