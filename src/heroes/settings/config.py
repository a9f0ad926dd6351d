"""The typed configuration of a run: how it is read, checked, changed and written. `sections` has the keys and
their defaults.

A configuration is read from TOML and written back to TOML; what is written is enough to repeat the run. A
wrong key or value gives one sentence that names the key, the value and what would be right. Nothing below
`assemble` sees this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from heroes.errors import ConfigError, did_you_mean
from heroes.settings import toml_text
from heroes.settings.sections import (
    SCHEMES,
    AdpConfig,
    CheckpointConfig,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    ExchangeConfig,
    FaultsConfig,
    FedAvgConfig,
    FederationConfig,
    FlancConfig,
    FleetConfig,
    HeroesConfig,
    HeteroFLConfig,
    ModelConfig,
    ObjectiveConfig,
    PrivacyConfig,
    RobustConfig,
    Section,
    ServerConfig,
    TrainingConfig,
)


class Config(Section):
    """Everything about a run."""

    task: str = "digits"
    """what the run is called in lists and reports; a TOML file starts from the recipe of this name"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """all randomness comes from it"""
    federation: FederationConfig = FederationConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()
    strategy: Annotated[
        HeroesConfig | FedAvgConfig | AdpConfig | HeteroFLConfig | FlancConfig, Field(discriminator="name")
    ] = HeroesConfig()
    exchange: ExchangeConfig = ExchangeConfig()
    fleet: FleetConfig = FleetConfig()
    faults: FaultsConfig = FaultsConfig()
    server: ServerConfig = ServerConfig()
    robust: RobustConfig = RobustConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    engine: EngineConfig = EngineConfig()

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        for trouble in _disagreements(self):
            raise ValueError(trouble)
        return self

    def changed(self, settings: Mapping[str, Any]) -> Config:
        """The same with some keys changed: `config.changed({"training.momentum": 0.5})`."""
        name = settings.get("strategy.name", self.strategy.name)
        tree = self.with_strategy(name if isinstance(name, str) else repr(name)).model_dump(mode="python")
        for dotted, value in settings.items():
            *sections, key = dotted.split(".")
            branch = tree
            for section in sections:
                branch = branch.setdefault(section, {})
                if not isinstance(branch, dict):
                    raise ConfigError(f"unknown key {dotted!r}: {section!r} is not a section")
            branch[key] = value
        return parse(tree)

    def with_strategy(self, name: str) -> Config:
        """The same with another scheme at its defaults; the present scheme keeps its settings."""
        if name not in SCHEMES:
            raise ConfigError(f"strategy.name is {name!r}: {did_you_mean(name, SCHEMES)}")
        return self if name == self.strategy.name else self.model_copy(update={"strategy": SCHEMES[name]()})

    def differs(self, other: Config) -> Iterator[str]:
        """The keys that have another value in the other configuration."""
        mine, theirs = (dict(_flat(config.model_dump(mode="python"))) for config in (self, other))
        return (key for key in mine | theirs if mine.get(key) != theirs.get(key))


def _disagreements(config: Config) -> Iterator[str]:
    """What keys of different sections say against each other."""
    faults, server, private, scheme = config.faults, config.server, config.privacy.noise > 0, config.strategy
    noise = f"privacy.noise is {config.privacy.noise}: noise"
    size = config.federation.cohort
    if config.engine.clock == "wall" and config.engine.name != "flower":
        yield f"engine.clock is 'wall' but engine.name is {config.engine.name!r}; only flower has clients with time of their own"
    if config.engine.clock == "wall" and faults != FaultsConfig():
        yield "engine.clock is 'wall': faults.* belong to virtual time; leave them out"
    if config.engine.name == "flower" and config.exchange.error_feedback:
        yield "exchange.error_feedback is true: with engine.name = 'flower' residuals cannot follow a client; use false"
    if server.at_least > size:
        yield f"server.at_least is {server.at_least} but the cohort is {size}; ask for at most {size}"
    if server.oversample * size > config.federation.clients:
        yield f"server.oversample is {server.oversample:g}: that is more than the {config.federation.clients} clients there are"
    if faults.silent and server.deadline is None and server.deadline_factor is None:
        yield "faults.silent is true: a round without a deadline would never end; set server.deadline or server.deadline_factor"
    if private and (config.robust.guard or config.robust.combine != "mean" or config.robust.clip is not None):
        yield f"{noise} needs every client's part bounded on its own; use robust.guard = false, combine = 'mean', clip = 'none'"
    if private and isinstance(scheme, AdpConfig):
        yield f"{noise} cannot protect what ADP sends beside the model (gradients, estimates); use another scheme"
    if private and isinstance(scheme, HeroesConfig) and scheme.adaptive_tau and scheme.pace != "constant":
        yield f"{noise} cannot protect the estimates behind strategy.pace; use strategy.pace = 'constant'"
    if private and isinstance(scheme, HeteroFLConfig) and scheme.label_split:
        yield f"{noise} cannot protect the classes that strategy.label_split tells the server; use label_split = false"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def parse(tree: Mapping[str, Any]) -> Config:
    """A configuration from nested plain values."""
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("; ".join(_sentences(error.errors(), tree))) from None
    for key, value in _flat(config.model_dump(mode="python")):
        if any(not _writable(text) for text in (value if isinstance(value, tuple) else (value,))):
            raise ConfigError(f"{key} is {value!r}: it should be text that can be written as UTF-8")
    return config


def _writable(value: Any) -> bool:
    """Whether a value is no text, or one without the halves of characters that a command line or Python can
    bring in.
    """
    return not isinstance(value, str) or not any("\ud800" <= letter <= "\udfff" for letter in value)


def load(path: Path, recipe: Callable[[str, str | None], Config], strategy: str | None = None) -> Config:
    """A configuration from a TOML file; what it leaves out comes from its task's recipe for its scheme, or
    for another.
    """
    try:
        tree = toml_text.read(path)
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {str(path)!r}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {str(path)!r} as TOML: {error}") from None
    own = tree.get("strategy")
    named = own.get("name") if isinstance(own, dict) else None
    if strategy is not None and named not in (None, strategy):
        del tree["strategy"]  # the file's settings are for another scheme
    chosen = strategy or _scheme(named)
    try:
        base = recipe(str(tree.get("task", "digits")), chosen)
    except ConfigError:  # a task of the user's own
        base = Config().with_strategy(chosen or "heroes")
    return parse(_merged(base.model_dump(mode="python"), tree))


def parse_setting(text: str) -> tuple[str, Any]:
    """`section.key=value` from the command line; the value is read as TOML, and as plain text where that
    fails.

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
    lines = [f"{key} = {_toml(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for section, values in tree.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def keys(strategy: str = "heroes") -> Iterator[tuple[str, Any, str]]:
    """Every key with its default and what it means, as they are for this scheme."""
    defaults = Config().with_strategy(strategy)
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


def _choices(annotation: Any) -> str:
    """The words or numbers a key may be, where it is not free."""
    named = [
        choice
        for part in (annotation, *get_args(annotation))
        if get_origin(part) is Literal
        for choice in get_args(part)
    ]
    return f" ({' | '.join(map(str, named))})" if len(named) > 1 else ""


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def _sentences(details: list[ErrorDetails], tree: Mapping[str, Any]) -> list[str]:
    """For every wrong key what was wrong, with the value, and what would be right."""
    wanted: dict[str, list[str]] = {}
    for detail in details:
        section, *inner = [*map(str, detail["loc"])] or [""]  # nowhere: a key that is no proper text
        if (
            section == "strategy" and inner and _scheme(inner[0])
        ):  # which scheme, where pydantic tells them apart
            del inner[0]
        name = "strategy.name" if detail["type"].startswith("union_tag") else ".".join([section, *inner[:1]])
        wanted.setdefault(name, []).append(_wanted(detail, name, tree))
    first = "it should be "
    return [
        _said(name, tree)
        + ", or ".join([phrases[0], *(phrase.removeprefix(first) for phrase in phrases[1:])])
        for name, phrases in wanted.items()
    ]


def _said(name: str, tree: Mapping[str, Any]) -> str:
    """The beginning of the sentence: the key, and its value where it has one. Keys that disagree say so
    themselves.
    """
    if not name:
        return ""
    section, _, key = name.partition(".")
    known = _known(tree)
    if name not in known and name in Config.model_fields and isinstance(tree.get(name), Mapping):
        return f"{name}: "
    quoted = "." in name and name in tree  # a key with a dot in it is no key in a section
    if quoted or section not in tree or (name not in known and name not in Config.model_fields):
        return f"unknown key {name!r}: "
    inside = tree[section]
    value = (
        (inside.get(key, "missing") if isinstance(inside, Mapping) else getattr(inside, key))
        if key
        else inside
    )
    return f"{name} is {list(value) if isinstance(value, tuple) else value!r}: "


def _known(tree: Mapping[str, Any]) -> list[str]:
    """The keys there are with the scheme that the tree names."""
    section = tree.get("strategy")
    name = section.get("name") if isinstance(section, Mapping) else None
    return [key for key, *_ in keys(_scheme(name) or "heroes")]


def _scheme(name: Any) -> str | None:
    """The name, if it is that of a scheme; it may be anything."""
    return name if isinstance(name, str) and name in SCHEMES else None


def _wanted(detail: ErrorDetails, name: str, tree: Mapping[str, Any]) -> str:
    kind = detail["type"]
    if kind.startswith("union_tag"):
        section = tree["strategy"]
        given = section.get("name", "") if isinstance(section, Mapping) else ""
        return did_you_mean(str(given), SCHEMES)
    if kind == "extra_forbidden":
        section, _, key = name.partition(".")
        inside = [
            known.removeprefix(f"{section}.") for known in _known(tree) if known.startswith(f"{section}.")
        ]
        return did_you_mean(key, inside) if key else did_you_mean(section, Config.model_fields)
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "literal_error":
        choices = detail["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        if all(choice.isdigit() for choice in choices):
            return f"it should be one of {', '.join(choices)}"
        return (
            did_you_mean(str(detail["input"]), choices)
            if len(choices) > 1
            else f"it should be {choices[0]!r}"
        )
    if kind in ("missing", "too_long", "tuple_type"):
        return (
            "it should be a list of names"
            if name in ("data.classes", "objective.metrics")
            else "it should be two numbers, [low, high]"
        )
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"it should be a section, [{name}] with keys of its own"
    return detail["msg"].replace("Input should be", "it should be", 1)
