"""Beside each number of the paper ours, and whether the claim holds.

A rival is behind if our row was better with every seed, ahead if it was worse with every seed, else even. A
gain is as large as the paper's if it is at least nine tenths of it. A verdict says what it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import fmean

from heroes.report.measures import Ratios, Spread, evaluations, mean_waiting, reached, score_at
from heroes.report.runs import RunData
from heroes.report.summary import MEGABYTE, final_score
from heroes.studies.figures import Chapter
from heroes.studies.tables import waiting
from heroes.studies.telling.markdown import percent
from heroes.studies.telling.paper import Point

ENOUGH = 0.9  # of the paper's gain
FAR = 0.5  # of the paper's target or score; what happens below that says little about it
Seeds = Mapping[int, float | None]


@dataclass(frozen=True)
class Gain:
    """How much better our row is than a rival, for each seed; `at` is the target if it is not the paper's."""

    spread: Spread
    paper: float
    neutral: float
    at: float | None = None
    lost: bool = False  # with some seed the rival got there and our row did not

    @property
    def standing(self) -> str:
        """Whether our row is ahead of the rival."""
        known = self.spread.reached
        if not known:
            return "unknown"
        if min(known) > self.neutral:
            return "even" if self.lost else "ahead"
        return "behind" if max(known) < self.neutral else "even"

    @property
    def enough(self) -> bool:
        mean = self.spread.mean
        return mean is not None and mean - self.neutral >= ENOUGH * (self.paper - self.neutral)


@dataclass(frozen=True)
class Compared:
    """A point of the paper beside one variant of ours."""

    point: Point
    chapter: Chapter

    def value(self, label: str) -> Spread:
        """What our row of this name came to, one number for each run."""
        return Spread(tuple(self._seeds(label, self.point.target).values()))

    @cached_property
    def gains(self) -> dict[str, Gain]:
        """How much better our row is than each rival that has runs."""
        there = {outcome.label for outcome in self.chapter.outcomes if outcome.runs}
        if self.point.ours not in there:
            return {}
        return {name: self._gain(name, gain) for name, gain in self.point.rivals.items() if name in there}

    @property
    def complete(self) -> bool:
        """Whether all runs of these rows are there."""
        rows = {outcome.label: outcome for outcome in self.chapter.outcomes}
        names = (self.point.ours, *self.point.rivals)
        return all(name in rows and len(rows[name].runs) == rows[name].wanted for name in names)

    def _gain(self, rival: str, paper: float) -> Gain:
        """By the paper's target, or by the hardest one below it that both reached."""
        easier = [each for each in sorted(self.chapter.plan.targets, reverse=True) if self._below(each)]
        for target in [self.point.target, *easier]:
            gain = self._at(rival, paper, target)
            if gain.spread.reached:
                return gain
        return self._at(rival, paper, self.point.target)

    def _below(self, target: float) -> bool:
        return self.point.target is not None and target < self.point.target

    def _at(self, rival: str, paper: float, target: float | None) -> Gain:
        mine, theirs = self._seeds(self.point.ours, target), self._seeds(rival, target)
        pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
        other = None if target == self.point.target else target
        if self.point.higher_is_better:
            kind: type[Spread] = Spread
            values = [None if a is None or b is None else a - b for a, b in pairs]
        else:
            kind = Ratios
            values = [b / a if a and b else None for a, b in pairs]
        lost = any(a is None and b is not None for a, b in pairs)
        return Gain(kind(tuple(values)), paper, 0.0 if self.point.higher_is_better else 1.0, other, lost)

    def _seeds(self, label: str, target: float | None) -> Seeds:
        runs = next((each.runs for each in self.chapter.outcomes if each.label == label), ())
        return {run.seed: self._measure(run, target) for run in runs}

    def _measure(self, run: RunData, target: float | None) -> float | None:
        kind = self.point.kind
        if kind in ("seconds", "traffic"):
            hit = reached(run, target or 0.0)
            return None if hit is None else hit.seconds if kind == "seconds" else hit.megabytes
        if kind == "waiting":
            return mean_waiting(run)
        if kind == "score":
            return final_score(run.rows)
        limits = {"seconds": self.limit} if kind.endswith("seconds") else {"megabytes": self.limit}
        return score_at(run, evaluations(run.rows), **limits)

    def times_the_rounds(self, rival: str, gain: Gain) -> float | None:
        """How many times our rounds a rival needed to the target of a gain, seed by seed, in the mean."""
        target = self.point.target if gain.at is None else gain.at
        runs, both = _runs(self.chapter), (self.point.ours, rival)
        mine, theirs = ({run.seed: reached(run, target or 0.0) for run in runs[name]} for name in both)
        pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
        return Ratios(tuple(b.round / a.round if a and b else None for a, b in pairs)).mean

    def rounds(self, run: RunData) -> float:
        """How many rounds a run had made when its score was taken."""
        if self.point.kind == "score":
            return len(run.rows)
        spent = (
            row.seconds if self.point.kind.endswith("seconds") else row.traffic / MEGABYTE for row in run.rows
        )
        return sum(each <= self.limit for each in spent)

    @cached_property
    def limit(self) -> float:
        """The seconds, or megabytes, at which scores are compared: a share of what all runs had."""
        rows = (self.point.ours, *self.point.rivals)
        ends = [run.rows[-1] for each in self.chapter.outcomes if each.label in rows for run in each.runs]
        if self.point.kind.endswith("seconds"):
            return self.point.share * min(self.chapter.plan.budget or inf, *(end.seconds for end in ends))
        return self.point.share * min(end.traffic for end in ends) / MEGABYTE


def verdict(compared: Compared) -> str:
    """Whether the claim holds in our runs, in a few words."""
    gains = compared.gains
    known = {name: gain for name, gain in gains.items() if gain.standing != "unknown"}
    if not known:
        return "no runs yet" if not gains else "not told: no target was reached"
    by = {
        word: [name for name in known if known[name].standing == word] for word in ("ahead", "even", "behind")
    }
    if len(by["ahead"]) == len(known):
        less = [name for name in known if not known[name].enough]
        told = f"yes, but by less than in the paper against {listed(less)}" if less else "yes"
    else:
        against = "; ".join(f"{_WORDS[word]} {listed(names)}" for word, names in by.items() if names)
        told = f"{'in part' if by['ahead'] else 'no'}: {against}"
    return f"{'' if compared.complete else 'so far '}{told}{_short(compared)}"


def _short(compared: Compared) -> str:
    """What a verdict does not cover: rivals of which nothing is known, and the paper's target or scores."""
    point, target, gains = compared.point, compared.point.target, compared.gains
    easier = [gain.at for gain in gains.values() if gain.at is not None and gain.spread.reached]
    far = "; at far lower targets" if target and easier and min(easier) < FAR * target else ""
    if point.higher_is_better and (compared.value(point.ours).mean or 0.0) < FAR * point.values.get(
        point.ours, 0.0
    ):
        far = "; at far lower scores"
    unknown = [name for name, gain in gains.items() if gain.standing == "unknown"]
    return far + (f"; not told of {listed(unknown)}" if unknown else "")


_WORDS = {"ahead": "ahead of", "even": "even with", "behind": "behind"}


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def why(compared: Compared) -> str:
    """What the gains are made of: fewer rounds times shorter or smaller ones, or what else explains them."""
    point, runs = compared.point, _runs(compared.chapter)
    mine = runs.get(point.ours)
    if mine is None or not compared.gains:
        return ""
    if point.kind == "waiting":
        shares = [f"{name} {percent(_mean(runs[name], waiting))}" for name in (point.ours, *compared.gains)]
        return f"Of a round they wait: {', '.join(shares)}."
    if point.higher_is_better:
        names = (point.ours, *compared.gains)
        rounds = [f"{name} {_mean(runs[name], compared.rounds):.0f}" for name in names]
        whole = [f"{name} {percent(_mean(runs[name], _whole))}" for name in names]
        said = f"Rounds by then: {', '.join(rounds)}."
        return f"{said} Clients that trained the complete model: {', '.join(whole)}."
    how = "long" if point.kind == "seconds" else "large"
    parts = [
        f"{name} {times:.2f}x as many, each {gain.spread.mean / times:.2f}x as {how}"
        for name, gain in compared.gains.items()
        if gain.spread.mean is not None and (times := compared.times_the_rounds(name, gain))
    ]
    return f"Beside the rounds of {point.ours}: {'; '.join(parts)}." if parts else ""


def _runs(chapter: Chapter) -> dict[str, tuple[RunData, ...]]:
    return {each.label: each.runs for each in chapter.outcomes if each.runs}


def _whole(run: RunData) -> float:
    """Which share of the clients of all rounds trained the complete model."""
    widths = [client.width for row in run.rows for client in row.clients]
    return widths.count(run.settings["model.max_width"]) / max(1, len(widths))


def _mean(runs: Sequence[RunData], of: Callable[[RunData], float]) -> float:
    return fmean(of(run) for run in runs)
