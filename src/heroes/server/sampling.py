"""Who takes part in a round: the first step of a round, and the last one, in which a sampler remembers it.

A sampler is any object with the methods of `heroes.contracts.Sampler`; what it gives is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heroes.contracts import Outcome, Sampler
from heroes.errors import ConfigError, TrainingError
from heroes.messages import Integers, Plan, ServerState, Timing
from heroes.planning.oort import Oort


@dataclass(frozen=True)
class Uniform:
    """Everybody with the same chance, nobody twice."""

    name: str = "uniform"
    uniform: bool = True

    def sample(
        self, state: ServerState[Any], candidates: Integers, wanted: int, rng: np.random.Generator
    ) -> Integers:
        return rng.choice(candidates, wanted, replace=False)

    def remember(self, state: ServerState[Any], plan: Plan, outcomes: Sequence[Outcome]) -> None:
        return None


SAMPLERS: Mapping[str, Callable[[], Sampler]] = {"uniform": Uniform, "oort": Oort}


def needs_utility(name: str) -> bool:
    """Whether clients must tell the sampler of this name how useful they are."""
    return bool(getattr(SAMPLERS.get(name), "needs_utility", False))


def fitting(sampler: Any) -> Sampler:
    """Return the user's own sampler if it has all that a sampler needs; else raise a ConfigError."""
    kind, name = type(sampler).__name__, getattr(sampler, "name", None)
    if isinstance(sampler, type):
        raise ConfigError(f"sampler is the class {sampler.__name__}; give an object, {sampler.__name__}(...)")
    lacks = [method for method in ("sample", "remember") if not callable(getattr(sampler, method, None))]
    if lacks:
        raise ConfigError(
            f"sampler is a {kind}, which has no method {lacks[0]!r}; see heroes.contracts.Sampler"
        )
    if not isinstance(name, str) or not isinstance(getattr(sampler, "uniform", None), bool):
        raise ConfigError(f"sampler is a {kind}; it needs a name, which is text, and uniform, true or false")
    fit: Sampler = sampler
    return fit


def sampled(
    sampler: Sampler, state: ServerState[Any], candidates: Integers, wanted: int, rng: np.random.Generator
) -> Integers:
    """The clients that the sampler chose, in ascending order; a TrainingError if its choice is invalid.

    >>> sampled(Uniform(), ServerState(0, {}, None), np.array([2, 5]), 9, np.random.default_rng(0)).tolist()
    [2, 5]
    """
    most = min(wanted, len(candidates))
    try:
        given = sampler.sample(state, candidates.copy(), most, rng)
    except Exception as error:  # a sampler of the user's own can fail in any way
        raise TrainingError(
            f"the sampler {sampler.name!r} failed in round {state.round + 1}: {type(error).__name__}: {error}"
        ) from error
    trouble = _wrong(given, candidates, most)
    if trouble is not None:
        raise TrainingError(
            f"the sampler {sampler.name!r} gave {_short(given)} in round {state.round + 1}: {trouble}; "
            f"it should give from 1 to {most} different client numbers out of its candidates"
        )
    return np.sort(np.asarray(given).astype(np.int64))


def _wrong(given: Any, candidates: Integers, most: int) -> str | None:
    """What is wrong with a sampler's choice, if anything."""
    try:
        chosen = np.asarray(given)
    except ValueError:  # lists of different lengths
        return "that is not a list of numbers"
    if chosen.ndim != 1 or (len(chosen) and not np.issubdtype(chosen.dtype, np.integer)):
        return "those are not whole numbers in one row"
    if not 1 <= len(chosen) <= most:
        return f"those are {len(chosen)} clients"
    if len(np.unique(chosen)) < len(chosen):
        return "a client is in it twice"
    nearest = np.searchsorted(candidates, chosen).clip(max=len(candidates) - 1)
    strange = chosen[candidates[nearest] != chosen]
    return f"client {strange[0]} is not among the candidates" if len(strange) else None


def remembered(
    sampler: Sampler,
    state: ServerState[Any],
    plan: Plan,
    answered: Mapping[int, tuple[int, float | None]],
    timing: Timing,
    measured: Mapping[int, Mapping[str, float]] | None = None,
) -> Any:
    """The sampler's memory after a round, exactly as a checkpoint would give it back."""
    told = measured or {}
    outcomes = [
        Outcome(a.client, *answered[a.client], float(timing.finished[n]), told.get(a.client, {}))
        for n, a in enumerate(plan.assignments)
        if a.client in answered
    ]
    try:
        memory = sampler.remember(state, plan, outcomes)
    except Exception as error:  # a sampler of the user's own can fail in any way
        raise TrainingError(
            f"the sampler {sampler.name!r} failed after round {state.round + 1}: {type(error).__name__}: "
            f"{error}"
        ) from error
    try:
        return json.loads(json.dumps(memory, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrainingError(
            f"the sampler {sampler.name!r} wants to remember {_short(memory)}, which cannot be written as "
            f"JSON ({error}); it should be None, text, finite numbers, lists and dictionaries"
        ) from None


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
