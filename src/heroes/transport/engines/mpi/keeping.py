"""Which final model a rank keeps, and where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from heroes.errors import ConfigError
from heroes.transport.engines.mpi.world import rank
from heroes.transport.opening import Parts


@dataclass(frozen=True)
class Keep:
    """The file for the final model of this width."""

    width: int
    path: Path


def kept(parts: Parts) -> Keep | None:
    """The model this rank keeps: of the configured width, else $HEROES_WIDTH, else complete."""
    if parts.model_out is None:
        return None
    named = "engine.model_width" if parts.model_width else "HEROES_WIDTH"
    wanted = str(parts.model_width or os.environ.get("HEROES_WIDTH", parts.widths[-1]))
    if wanted not in map(str, parts.widths):
        raise ConfigError(f"{named} is {wanted!r}. Choices: {', '.join(map(str, parts.widths))}")
    return Keep(int(wanted), Path(parts.model_out.replace("{rank}", str(rank()))))
