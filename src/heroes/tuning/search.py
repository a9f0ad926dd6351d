"""The search: asks for stages, finds out which of their trials are still to be made, and keeps the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from heroes.report.metrics import Metric
from heroes.settings.config import Config
from heroes.settings.tuned_files import Settings
from heroes.tuning.grids import Grid, combinations, varied
from heroes.tuning.results import Book, Result, Trial
from heroes.tuning.stages import RATE, TAUS, Stage, crossed, staged, step_limits, tau_key, within

SEEDS = (100, 101)  # for tuning only: what is reported is run with others
MakeAll = Callable[[Sequence[Trial], int, int], None]
"""makes trials and adds their results to the book; hears how many of this stage are on record already, and
how many are expected after it
"""


@dataclass(frozen=True)
class Candidate:
    """Settings of a strategy, and what they came to over all seeds."""

    strategy: str
    settings: Settings
    results: tuple[Result, ...]

    @property
    def metric(self) -> Metric:
        return Metric(self.results[0].metric, self.results[0].lower_is_better)

    @property
    def score(self) -> float | None:
        """The mean over seeds; None if any trial has none."""
        scores = [result.score for result in self.results]
        return None if None in scores else fmean(score for score in scores if score is not None)

    @property
    def reached(self) -> float | None:
        """Mean virtual seconds to that score; None if any trial did not get there."""
        seconds = [result.reached for result in self.results]
        return None if None in seconds else fmean(each for each in seconds if each is not None)

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The best is the smallest: by score, of equal ones by time."""
        score, reached = self.score, self.reached
        if score is None:
            return True, 0.0, 0.0
        late = float("inf") if reached is None else reached
        return False, score if self.metric.lower_is_better else -score, late


@dataclass
class Search:
    """A search over strategies: their configurations, a grid (none: the stages), and the seeds."""

    bases: Mapping[str, Config]
    grid: Grid
    book: Book
    seeds: Sequence[int] = SEEDS
    tried: dict[str, list[Settings]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise an error if a strategy cannot take what it is to try, or the book is about something else."""
        self.book.refuse_others(self.bases, self.searched())
        for name, config in self.bases.items():
            key = tau_key(config)
            ahead = combinations(self.grid or ({key: within(config, TAUS)} if key else {}))
            for settings in ahead:
                self._trial(name, settings, self.seeds[0])

    def run(self, make_all: MakeAll) -> None:
        """Make every trial that has no result yet, stage by stage."""
        for stage in self._stages():
            trials = self._trials(stage)
            todo = [trial for trial in trials if self.book.find(trial) is None]
            make_all(todo, len(trials) - len(todo), stage.later * len(self.seeds))

    def searched(self) -> set[str]:
        """The keys that trials differ in."""
        if self.grid:
            return set(self.grid)
        limits = {"strategy.step_limit"} if any(map(step_limits, self.bases.values())) else set()
        own = {key for config in self.bases.values() for key in config.strategy.tries}
        return {RATE} | limits | own | {key for key in map(tau_key, self.bases.values()) if key}

    def _stages(self) -> Iterator[Stage]:
        return crossed(self.bases, self.grid) if self.grid else staged(self.bases, self._best_settings)

    def _trials(self, stage: Stage) -> list[Trial]:
        """What a stage asks for, with every seed; settings that come to the same are tried once."""
        trials: list[Trial] = []
        for name, wanted in stage.tries.items():
            known = self.tried.setdefault(name, [])
            known += [settings for settings in wanted if settings not in known]
            trials += [self._trial(name, settings, seed) for settings in wanted for seed in self.seeds]
        distinct: dict[str, Trial] = {}
        for trial in trials:
            distinct.setdefault(trial.config.model_dump_json(), trial)
        return list(distinct.values())

    def _trial(self, name: str, settings: Settings, seed: int) -> Trial:
        return Trial(varied(self.bases[name], {**settings, "seed": seed}), settings)

    def _best_settings(self, name: str) -> Settings | None:
        best = self.candidates(name)[0]
        return None if best.score is None else best.settings

    def candidates(self, name: str) -> list[Candidate]:
        """The settings of a strategy that have all their results, the best first; of equals the first."""
        found: list[Candidate] = []
        for settings in self.tried.get(name, ()):
            results = [self.book.find(self._trial(name, settings, seed)) for seed in self.seeds]
            whole = tuple(result for result in results if result is not None)
            if len(whole) == len(results) and all(each.results != whole for each in found):
                found.append(Candidate(name, settings, whole))
        return sorted(found, key=lambda each: each.rank)
