"""The results of trials, one line of JSON each: alone enough to know what was tried and what it came to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from heroes.errors import RunFolderError
from heroes.messages import RoundRecord
from heroes.report.measures import evaluations, reach
from heroes.report.metrics import Metric
from heroes.report.runs import IRRELEVANT
from heroes.settings.config import Config, flat
from heroes.settings.earlier import by_present_names
from heroes.settings.tuned_files import Settings
from heroes.tuning.scores import score

_UNTOLD = (*IRRELEVANT, "strategy.name")
_UNTOLD_SECTIONS = ("engine.", "checkpoint.", "tracking.")


@dataclass(frozen=True)
class Trial:
    """One run of a search: a strategy's settings with one seed."""

    config: Config
    settings: Settings
    """what was searched, of the configuration"""

    @property
    def strategy(self) -> str:
        return self.config.strategy.name

    @property
    def seed(self) -> int:
        return self.config.seed


@checked(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Result:
    """What a trial came to. `config` has all settings that are not the strategy's defaults."""

    strategy: str
    settings: dict[str, Any]
    seed: int
    metric: str
    lower_is_better: bool
    score: float | None  # None: it failed, or had no test within the budget
    reached: float | None  # virtual seconds after which it first had that score
    seconds: float
    rounds: int
    wall_seconds: float
    failed: str | None
    config: Annotated[dict[str, Any], AfterValidator(by_present_names)]


_RESULT = TypeAdapter(Result)


def described(config: Config) -> dict[str, Any]:
    """The settings that tell what a run is, as JSON has them, where they are not the defaults."""
    plain = Config(experiment="").with_strategy(type(config.strategy)())
    values = dict(flat(config.model_dump(mode="json")))
    return {
        key: values.get(key)
        for key in config.differs(plain)
        if key not in _UNTOLD and not key.startswith(_UNTOLD_SECTIONS)
    }


def result_of(
    trial: Trial, rows: Sequence[RoundRecord], wall_seconds: float, failed: str | None = None
) -> Result:
    """What the rounds of a trial came to."""
    budget, metric, tests = trial.config.federation.time_budget, Metric.of(rows), evaluations(rows)
    assert budget is not None
    came = None if failed else score(tests, budget, metric.lower_is_better)
    at = None if came is None else reach(tests, came, metric)
    return Result(
        strategy=trial.strategy,
        settings=json.loads(json.dumps(dict(trial.settings))),
        seed=trial.seed,
        metric=metric.name,
        lower_is_better=metric.lower_is_better,
        score=came,
        reached=None if at is None else at.seconds,
        seconds=rows[-1].seconds if rows else 0.0,
        rounds=len(rows),
        wall_seconds=round(wall_seconds, 1),
        failed=failed,
        config=described(trial.config),
    )


class Book:
    """The file of results, read at the start; each new result is on the disk before the next trial ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: list[Result] = []
        self.torn = False
        if path.exists():
            self._read()

    def _read(self) -> None:
        *whole, tail = self.path.read_bytes().split(b"\n")
        self.results += [self._result(line, number) for number, line in enumerate(whole, 1)]
        if tail:  # the process that wrote it was killed, or an editor left out the last end of a line
            try:
                self.results.append(_RESULT.validate_json(tail, strict=True))
                _append(self.path, "\n")
            except ValidationError:
                self.torn = True
                os.truncate(self.path, self.path.stat().st_size - len(tail))

    def _result(self, line: bytes, number: int) -> Result:
        try:
            return _RESULT.validate_json(line, strict=True)
        except ValidationError as error:
            why = error.errors()[0]
            place = ".".join(map(str, why["loc"])) or "it"
            raise RunFolderError(
                f"line {number} of {str(self.path)!r} is damaged: {place}: {why['msg']}; take the line out, "
                "and its trial is made again"
            ) from None

    def find(self, trial: Trial) -> Result | None:
        """What this very trial came to, if it was made."""
        wanted = described(trial.config)
        return next((r for r in self.results if _same(r, trial) and r.config == wanted), None)

    def add(self, result: Result) -> None:
        """Write a result down."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _append(self.path, json.dumps(asdict(result), allow_nan=False) + "\n")
        self.results.append(result)

    def refuse_others(self, bases: Mapping[str, Config], searched: Iterable[str]) -> None:
        """Raise an error if a result was made under settings that are not searched and are different now."""
        free = set(searched)
        now = {name: _fixed(described(config), free) for name, config in bases.items()}
        for result in self.results:
            if result.strategy not in now:
                continue
            before, after = _fixed(result.config, free), now[result.strategy]
            for key in before | after:
                if before.get(key) != after.get(key):
                    raise RunFolderError(
                        f"{str(self.path)!r} holds trials of {result.strategy} with {_told(key, before)}, "
                        f"but now it is {_told(key, after)}; choose another --out, or the settings of before"
                    )


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _same(result: Result, trial: Trial) -> bool:
    return (result.strategy, result.seed) == (trial.strategy, trial.seed)


def _fixed(settings: Settings, free: set[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in free}


def _told(key: str, settings: Settings) -> str:
    return f"{key} = {json.dumps(settings[key])}" if key in settings else f"the default of {key}"
