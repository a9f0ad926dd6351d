"""What a study is, as a TOML file says it: a question, an experiment, and the runs that answer it.

about = "How many local steps are best?"
experiment = "digits"
seeds = [100, 101]
budget = 60               # virtual seconds of every run
targets = [0.9, 0.95]

[settings]                # of every run; a key that only some strategies have is for those alone
"strategy.pace" = "constant"

[settings.flanc]          # what one of the strategies gets besides
"strategy.tau" = 20

[runs."ten steps"]        # one row of the table: a strategy, by default heroes, and its settings
"strategy.tau_first" = 10 # literal = true would add those that follow its publication to the letter

# every_strategy = true   # beside those, one row for each registered strategy, named after it

[variants."8 bits"]       # every variant has all rows, and a table of its own; written like settings
"exchange.up_bits" = 8

[scales.smoke]            # what is otherwise at another scale; settings are added
budget = 5
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from heroes.errors import ConfigError, did_you_mean
from heroes.fields import Positive
from heroes.settings import toml_text
from heroes.settings.config import Config
from heroes.settings.mistakes import sentences
from heroes.settings.recipes import recipe
from heroes.strategies import registry

SHIPPED = Path(__file__).with_name("plans")
FIGURES = SHIPPED / "figures"
SCALES = ("smoke", "small", "full")
Scalar = bool | int | float | str | list[Any]
Settings = dict[str, Scalar | dict[str, Scalar]]
"""by key, and by the name of a strategy those that it alone gets"""


class Scale(BaseModel):
    """What a study is at another scale."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    experiment: str = ""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)
    budget: Positive | None = None
    targets: tuple[float, ...] = ()
    settings: Settings = {}
    variants: Annotated[dict[str, Settings], Field(min_length=1)] = {"": {}}


class Plan(BaseModel):
    """A study. `lesson` is what was learnt, written when its runs had ended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    about: str
    experiment: str
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (100, 101)
    budget: Positive | None = None
    targets: tuple[float, ...] = ()
    settings: Settings = {}
    every_strategy: bool = False
    runs: dict[str, dict[str, Scalar]] = {}
    variants: Annotated[dict[str, Settings], Field(min_length=1)] = {"": {}}
    scales: dict[str, Scale] = {}
    lesson: str = ""

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds is {list(self.seeds)}; each seed should be there once")
        if not self.table:
            raise ValueError('it has no runs; write a section such as [runs."ten steps"]')
        return self

    @property
    def table(self) -> dict[str, dict[str, Scalar]]:
        """The settings of every row, by its name."""
        names = registry.BUILT_IN if self.every_strategy else ()
        return {**{name: {"strategy": name} for name in names}, **self.runs}

    def at(self, scale: str) -> Plan:
        """The same at another scale."""
        if scale not in SCALES:
            raise ConfigError(f"the scale is {scale!r}: {did_you_mean(scale, SCALES)}")
        chosen = self.scales.get(scale)
        if chosen is None:
            return self
        told = {name: getattr(chosen, name) for name in chosen.model_fields_set}
        return self.model_copy(update={**told, "settings": {**self.settings, **chosen.settings}})


@dataclass(frozen=True)
class Row:
    """One row of a study's table, and its runs, one for each seed."""

    label: str
    configs: tuple[Config, ...]


def read(name: str) -> Plan:
    """The study of this name among those that come with heroes, or in this file."""
    path = Path(name)
    if path.suffix != ".toml":
        if name not in names():
            known = did_you_mean(name, names())
            raise ConfigError(f"unknown study {name!r}: {known}; or give the path of a TOML file")
        path = SHIPPED / f"{name}.toml"
    return read_file(path)


def read_file(path: Path) -> Plan:
    """The study in a file."""
    name = str(path)
    tree: dict[str, Any] = {}
    try:
        tree = toml_text.read(path)
        return Plan.model_validate({"name": path.stem, **tree})
    except FileNotFoundError:
        raise ConfigError(f"there is no file {name!r}") from None
    except ValidationError as error:
        known = tuple(Plan.model_fields)
        raise ConfigError(
            f"{name!r} is not a study: {'; '.join(sentences(error.errors(), tree, known, known))}"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {name!r} as TOML: {error}") from None


def names() -> list[str]:
    """The studies that come with heroes."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def rows(plan: Plan, variant: str = "") -> Iterator[Row]:
    """What there is to run, in one of the variants."""
    for label, settings in plan.table.items():
        strategy = str(settings.get("strategy", registry.DEFAULT))
        try:
            of_all, of_variant = (
                meant_for(strategy, given) for given in (plan.settings, plan.variants[variant])
            )
            every = {**of_all, **of_variant, **_literal(strategy, settings), **settings}
            chosen = {name: value for name, value in every.items() if name not in ("strategy", "literal")}
            config = _config(plan, strategy, chosen)
            yield Row(label, tuple(config.changed({"seed": seed}) for seed in plan.seeds))
        except ConfigError as error:
            raise ConfigError(f"study {plan.name!r}, run {label!r}: {error}") from None


def meant_for(strategy: str, given: Settings) -> dict[str, Scalar]:
    """What settings mean for one strategy: without the keys of others, with what it alone gets."""
    others = {key for name in registry.BUILT_IN for key in registry.find(name).model_fields}
    foreign = {f"strategy.{key}" for key in others - registry.find(strategy).model_fields.keys()}
    every: dict[str, Scalar] = {}
    own: dict[str, Scalar] = {}
    for key, value in given.items():
        if not isinstance(value, dict):
            every |= {} if key in foreign else {key: value}
        elif registry.find(key) is registry.find(strategy):
            own = value
    return every | own


def _literal(strategy: str, settings: Mapping[str, Scalar]) -> Mapping[str, Any]:
    return registry.find(strategy).literal if settings.get("literal") else {}


def _config(plan: Plan, strategy: str, settings: Mapping[str, Any]) -> Config:
    budget = {} if plan.budget is None else {"federation.time_budget": plan.budget}
    ends = {"federation.rounds": 1_000_000, **budget} if budget else {}
    return recipe(plan.experiment, strategy).changed({**ends, **settings})
