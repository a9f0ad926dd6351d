"""The configuration as it travels to clients: without the seed, but with what shares out the data.

The seed decides who takes part, and with `privacy.source = "seed"` the noise: none of that is for clients.
"""

from __future__ import annotations

import tomllib

from heroes.errors import ConfigError
from heroes.seeds import Keys
from heroes.settings.config import Config, parse, to_toml
from heroes.strategies.base import Strategy

_STREAMS = (
    ("partition",),
    ("fleet", "devices"),
    ("fleet", "speeds"),
    ("data", "test"),
    ("evaluation", "sample"),
    ("validation",),
    ("shakespeare", "roles"),
)


def sent(config: Config) -> str:
    """The text that processes elsewhere set themselves up from."""
    keys = Keys.of(config.seed, (*_STREAMS, ("data", config.data.name)))
    lines = [f'"{name}" = "{key}"' for name, key in keys.known.items()]
    return to_toml(config.model_copy(update={"seed": 0})) + "\n".join(["", "[keys]", *lines, ""])


def received(text: str, strategy: type[Strategy] | None) -> tuple[Config, Keys]:
    """The configuration in such a text, with 0 for its seed, and the keys that stand in for that."""
    tree = tomllib.loads(text)
    known = tree.pop("keys", None)
    if not isinstance(known, dict):
        raise ConfigError("the server's configuration has no keys: it runs another version of heroes")
    return parse(tree, strategy), Keys(known)
