"""Oort: clients that the model still learns much from, and that are quick, take part more often.

A sampler, as `heroes.contracts.Sampler` has it. Clients tell how useful they are: the number of examples they
trained on times the root of their mean squared loss. Of a round's places a share that shrinks from round to
round goes to clients never seen, the others to seen ones drawn in proportion to

    (utility - 0.999 * least) / range + sqrt(0.1 * ln(round) / last round it took part in)

and, where a client takes t seconds and more than T, times (T / t)^penalty. T is a percentile of what seen
clients take; the pacer raises it when the cohort's utility has stopped growing, which admits slower ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from heroes.messages import Floats, Integers, Plan, ServerState

if TYPE_CHECKING:
    from heroes.contracts import Outcome

_SMALLEST = 1e-4  # range of utilities
Seen = dict[str, list[float]]  # by client: utility, seconds, the last round it took part in


@dataclass(frozen=True)
class Oort:
    """Chooses clients by utility and speed. It remembers the seen ones, a percentile and sums of utility."""

    exploration: float = 0.9
    exploration_decay: float = 0.98
    exploration_least: float = 0.2
    clip: float = 0.95
    cutoff: float = 0.95
    penalty: float = 2.0
    percentile: float = 30.0
    pacer_step: float = 5.0
    pacer_rounds: int = 20
    name: str = "oort"
    uniform: bool = False
    needs_utility: ClassVar[bool] = True

    def sample(
        self, state: ServerState[Any], candidates: Integers, wanted: int, rng: np.random.Generator
    ) -> Integers:
        memory = state.sampler or {"seen": {}, "percentile": self.percentile}
        known = [str(client) in memory["seen"] for client in candidates.tolist()]
        seen, unseen = candidates[known], candidates[np.logical_not(known)]
        explored = min(len(unseen), max(wanted - self.exploited(state.round, wanted), wanted - len(seen)))
        chosen = rng.choice(unseen, explored, replace=False)
        if explored == wanted:
            return chosen
        rows = np.array([memory["seen"][str(client)] for client in seen.tolist()])
        scores = self.scores(rows, state.round + 1, memory["percentile"])
        return np.concatenate([chosen, self._drawn(seen, scores, wanted - explored, rng)])

    def exploited(self, rounds_done: int, wanted: int) -> int:
        """How many places go to seen clients, if there are so many.

        >>> Oort().exploited(0, 10), Oort().exploited(1000, 10)
        (1, 8)
        """
        share = max(self.exploration * self.exploration_decay**rounds_done, self.exploration_least)
        return int(wanted * (1 - share) + 1e-9)

    def scores(self, rows: Floats, round_number: int, percentile: float) -> Floats:
        """How much each seen client is wanted; rows are utility, seconds and last round."""
        utility, seconds, last = rows.T
        most, least = np.quantile(utility, self.clip), 0.999 * utility.min()
        found = (np.minimum(utility, most) - least) / max(most - least, _SMALLEST)
        found = found + np.sqrt(0.1 * math.log(round_number) / last)
        limit = np.percentile(seconds, min(percentile, 100.0))
        slow = np.maximum(seconds, 1e-12)
        late = np.where(seconds > limit, (limit / slow) ** self.penalty, 1.0)
        return np.asarray(found * late, dtype=np.float64)

    def _drawn(self, seen: Integers, scores: Floats, places: int, rng: np.random.Generator) -> Integers:
        """So many of those whose score is near that of the last who would get a place, or above it."""
        pool = scores >= self.cutoff * np.sort(scores)[-places]
        weights = scores[pool] + 1e-12
        return rng.choice(seen[pool], places, replace=False, p=weights / weights.sum())

    def remember(self, state: ServerState[Any], plan: Plan, outcomes: Sequence[Outcome]) -> Any:
        before = state.sampler or {"seen": {}, "percentile": self.percentile, "sums": []}
        seen: Seen = dict(before["seen"])
        known = [o for o in outcomes if str(o.client) in seen]
        sums = [*before["sums"], sum(utility_of(o) for o in known)][-2 * self.pacer_rounds :]
        for o in outcomes:
            seen[str(o.client)] = [utility_of(o), o.seconds, state.round + 1]
        paced = self.paced(before["percentile"], sums, state.round + 1)
        return {"seen": seen, "percentile": paced, "sums": sums}

    def paced(self, percentile: float, sums: Sequence[float], rounds: int) -> float:
        """The percentile after so many rounds: higher where utility stays, lower where it jumps."""
        size = self.pacer_rounds
        if len(sums) < 2 * size or rounds % size:
            return percentile
        before, now = sum(sums[:size]), sum(sums[size:])
        if abs(now - before) <= 0.1 * before:
            return min(100.0, percentile + self.pacer_step)
        if abs(now - before) >= 5 * before:
            return max(self.pacer_step, percentile - self.pacer_step)
        return percentile


def utility_of(outcome: Outcome) -> float:
    """What a client said of its utility; else its samples times its loss, or 0 if it told neither."""
    told = outcome.measured.get("utility")
    return told if told is not None else outcome.samples * (outcome.loss or 0.0)
