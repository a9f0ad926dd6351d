"""The names that settings had in earlier versions. What reads settings from outside asks here first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RENAMED = {"task": "experiment"}


def by_present_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, nested or with dots, by the names they have now.

    >>> by_present_names({"task": "digits", "seed": 0})
    {'experiment': 'digits', 'seed': 0}
    """
    return {_present(key, settings): value for key, value in settings.items()}


def _present(key: str, settings: Mapping[str, Any]) -> str:
    new = _RENAMED.get(key, key)
    return key if new in settings else new  # with both names one is a mistake, which the reader will tell
