"""The typed configuration of a run: how it is checked, changed and written. `sections` has the keys, and
`toml_files` reads configuration files.

What is written as TOML is enough to repeat the run. A wrong key or value gives one sentence that names the
key, the value and what would be right. Nothing below `assemble` sees this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import Field, SerializeAsAny, ValidationError, model_validator
from pydantic_core import ErrorDetails

from heroes.errors import ConfigError, did_you_mean
from heroes.fields import Section
from heroes.messages import SHARES
from heroes.settings import toml_text
from heroes.settings.earlier import by_present_names
from heroes.settings.mistakes import sentences
from heroes.settings.sections import (
    CheckpointConfig,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    ExchangeConfig,
    FederationConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimiserConfig,
    OwnConfig,
    PrivacyConfig,
    RobustConfig,
    ServerConfig,
    TrackingConfig,
    TrainingConfig,
)
from heroes.settings.world_sections import FaultsConfig, FleetConfig
from heroes.strategies import registry
from heroes.strategies.base import Strategy


class Config(Section):
    """Everything about a run."""

    experiment: str = "digits"
    """what the run is called in lists and reports; a TOML file starts from the recipe of this name, or from
    that of `base`, and then any name will do"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """all randomness comes from it"""
    federation: FederationConfig = FederationConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()
    strategy: SerializeAsAny[Strategy] = Field(default_factory=lambda: registry.find(registry.DEFAULT)())
    exchange: ExchangeConfig = ExchangeConfig()
    fleet: FleetConfig = FleetConfig()
    faults: FaultsConfig = FaultsConfig()
    server: ServerConfig = ServerConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    robust: RobustConfig = RobustConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    engine: EngineConfig = EngineConfig()
    tracking: TrackingConfig = TrackingConfig()
    own: OwnConfig = OwnConfig()

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        for trouble in _disagreements(self):
            raise ValueError(trouble)
        return self

    def changed(self, settings: Mapping[str, Any]) -> Config:
        """The same with some keys changed: `config.changed({"training.momentum": 0.5})`.

        Args:
            settings: dotted keys and their new values.
        """
        name = settings.get("strategy.name", self.strategy.name)
        chosen = self.with_strategy(name if isinstance(name, str) else repr(name))
        tree = chosen.model_dump(mode="python")
        for dotted, value in by_present_names(settings).items():
            *sections, key = dotted.split(".")
            branch = tree
            for section in sections:
                branch = branch.setdefault(section, {})
                if not isinstance(branch, dict):
                    raise ConfigError(f"unknown key {dotted!r}: {section!r} is not a section")
            branch[key] = value
        return parse(tree, type(chosen.strategy))

    def with_strategy(self, strategy: str | Strategy) -> Config:
        """The same with another strategy.

        Args:
            strategy: an object, or a name, which comes with its defaults. The name of the present one keeps
                the present settings.
        """
        if isinstance(strategy, str):
            if strategy == self.strategy.name:
                return self
            strategy = registry.find(strategy)()
        return self._requiring(registry.own(strategy))

    def _requiring(self, strategy: Strategy) -> Config:
        """The same with this strategy and what it requires, and without what the present one does."""
        usual = dict(flat(Config().model_dump(mode="python")))
        given = {key: usual[key] for key in self.strategy.requires} | dict(strategy.requires)
        update: dict[str, Any] = {"strategy": strategy}
        for dotted, value in given.items():
            section, _, key = dotted.partition(".")
            update[section] = update.get(section, getattr(self, section)).model_copy(update={key: value})
        return self.model_copy(update=update)

    def differs(self, other: Config) -> Iterator[str]:
        """The keys that have another value.

        Args:
            other: the configuration to compare with.
        """
        mine, theirs = (dict(flat(config.model_dump(mode="python"))) for config in (self, other))
        return (key for key in mine | theirs if mine.get(key) != theirs.get(key))


def _disagreements(config: Config) -> Iterator[str]:
    """Contradictions between keys of different sections, each as a sentence."""
    faults, server, private = config.faults, config.server, config.privacy.noise > 0
    noise = f"privacy.noise is {config.privacy.noise}: noise"
    size = config.federation.cohort
    yield from _not_as_required(config)
    yield from _out_of_reach(config)
    if config.engine.clock == "wall" and config.engine.name != "flower":
        yield (
            f"engine.clock is 'wall' but engine.name is {config.engine.name!r}; "
            "only flower has clients with time of their own"
        )
    if config.engine.clock == "wall" and faults != FaultsConfig():
        yield "engine.clock is 'wall': faults.* belong to virtual time; leave them out"
    if config.engine.clock == "wall" and config.fleet.foresight == "expected":
        yield (
            "fleet.foresight is 'expected' but engine.clock is 'wall', and real clients are always planned "
            "by what was measured before; use 'exact'"
        )
    if config.engine.name == "flower" and config.exchange.error_feedback:
        yield (
            "exchange.error_feedback is true: with engine.name = 'flower' residuals cannot follow a client; "
            "use false"
        )
    if server.at_least > size:
        yield f"server.at_least is {server.at_least} but the cohort is {size}; ask for at most {size}"
    if server.oversample * size > config.federation.clients:
        yield (
            f"server.oversample is {server.oversample:g}: "
            f"that is more than the {config.federation.clients} clients there are"
        )
    if faults.silent and server.deadline is None and server.deadline_factor is None:
        yield (
            "faults.silent is true: a round without a deadline would never end; "
            "set server.deadline or server.deadline_factor"
        )
    if private and (config.robust.guard or config.robust.combine != "mean" or config.robust.clip is not None):
        yield (
            f"{noise} needs every client's part bounded on its own; use robust.guard = false, "
            "combine = 'mean', clip = 'none'"
        )
    if private and config.federation.target_loss is not None:
        wanted = f"federation.target_loss is {config.federation.target_loss:g}; use 'none'"
        yield f"{noise} cannot protect the training loss, which would end the run: {wanted}"
    if private and (told := config.strategy.reveals()) is not None:
        yield f"{noise} cannot protect {told}"


def _out_of_reach(config: Config) -> Iterator[str]:
    """A target that no score can be at."""
    main, target = config.objective.measured[0], config.federation.target
    if main in SHARES and target is not None and not 0 < target <= 1:
        yield (
            f"federation.target is {target:g} but the main metric is {main}: it should be above 0 and at "
            "most 1, such as 0.8 for 80 %"
        )


def _not_as_required(config: Config) -> Iterator[str]:
    """Settings without which the strategy would be another one."""
    for key, wanted in config.strategy.requires.items():
        section, _, name = key.partition(".")
        found = getattr(getattr(config, section), name)
        if found != wanted:
            yield f"strategy.name is {config.strategy.name!r}, which needs {key} = {wanted!r}, not {found!r}"


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings one by one, with dotted names."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def parse(tree: Mapping[str, Any], strategy: type[Strategy] | None = None) -> Config:
    """A configuration from nested plain values; `strategy` is a class that has no registered name."""
    kind = _strategy(tree, strategy)
    details: list[ErrorDetails] = []
    whole = dict(tree)
    if isinstance(section := tree.get("strategy"), Mapping):
        try:
            whole["strategy"] = kind.model_validate(section)
        except ValidationError as error:
            del whole["strategy"]
            details += [{**detail, "loc": ("strategy", *detail["loc"])} for detail in error.errors()]
    try:
        config = Config.model_validate(whole)
    except ValidationError as error:
        details = error.errors() + details
    if details:
        known = [key for key, *_ in keys(kind)]
        raise ConfigError("; ".join(sentences(details, tree, known, tuple(Config.model_fields))))
    for key, value in flat(config.model_dump(mode="python")):
        if any(not _writable(text) for text in (value if isinstance(value, tuple) else (value,))):
            raise ConfigError(f"{key} is {value!r}: it should be text that can be written as UTF-8")
    return config


def parse_kept(tree: Mapping[str, Any], strategy: type[Strategy] | None = None) -> Config:
    """A configuration that a run wrote, perhaps with an earlier version, which knew fewer keys."""
    section = tree.get("strategy")
    if isinstance(section, Mapping):
        tree = {**tree, "strategy": {**_strategy(tree, strategy).absent, **section}}
    return parse(tree, strategy)


def _strategy(tree: Mapping[str, Any], own: type[Strategy] | None) -> type[Strategy]:
    """The class of the strategy that a tree names; the default where it names none."""
    section = tree.get("strategy")
    name = section.get("name", "missing") if isinstance(section, Mapping) else registry.DEFAULT
    if own is not None and name == own.model_fields["name"].default:
        return own
    if not isinstance(name, str):
        raise ConfigError(f"strategy.name is {name!r}: {did_you_mean(repr(name), registry.names())}")
    return registry.find(name)


def _writable(value: Any) -> bool:
    """Whether a value is valid text or no text: a command line can bring in lone surrogates."""
    return not isinstance(value, str) or not any("\ud800" <= letter <= "\udfff" for letter in value)


def parse_setting(text: str) -> tuple[str, Any]:
    """`section.key=value` from the command line; the value is read as TOML, else as plain text.

    >>> parse_setting("training.momentum=0.5"), parse_setting("strategy.blocks=free")
    (('training.momentum', 0.5), ('strategy.blocks', 'free'))
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(
            f"{text!r} is not a setting; write section.key=value, for example training.momentum=0.5"
        )
    try:
        return key.strip(), toml_text.loads(f"value = {value}")["value"]
    except ValueError:
        return key.strip(), value.strip()


def to_toml(config: Config) -> str:
    """The configuration as TOML, every key written out; one that is not set is "none"."""
    tree = config.model_dump(mode="python")
    lines = [f"{key} = {written(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for section, values in tree.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]"]
            lines += [f"{key} = {written(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def keys(strategy: type[Strategy] | None = None) -> Iterator[tuple[str, Any, str]]:
    """Every key with its default and what it means, as they are for this strategy."""
    defaults = Config()
    if strategy is not None:
        defaults = defaults.model_copy(update={"strategy": strategy()})
    for name, field in Config.model_fields.items():
        default = getattr(defaults, name)
        if isinstance(default, Section):
            for key, inner in type(default).model_fields.items():
                yield (
                    f"{name}.{key}",
                    getattr(default, key),
                    _in_one_line(inner.description) + _choices(inner.annotation),
                )
        else:
            yield name, default, _in_one_line(field.description)


def _in_one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def choices(annotation: Any) -> list[Any]:
    """The words or numbers that a key may have by name."""
    return [
        choice
        for part in (annotation, *get_args(annotation))
        if get_origin(part) is Literal
        for choice in get_args(part)
    ]


def _choices(annotation: Any) -> str:
    named = choices(annotation)
    return f" ({' | '.join(map(str, named))})" if len(named) > 1 else ""


def written(value: Any) -> str:
    """A value as TOML has it."""
    if value is None:
        return '"none"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
